//! Which files are found, and when they are read again.

use std::os::unix::fs::symlink;

use super::read::SIZE_LIMIT;
use super::*;

const NODE: &str = "{apiVersion: v1, kind: Node, metadata: {name: n1}}\n";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn put(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn look(disk: &mut Disk) -> DiskSurvey {
    disk.look(&mut io::empty())
}

/// Files with what was found in them, relative to the folder.
fn findings(look: &DiskSurvey, folder: &Path) -> Vec<String> {
    let files = look.survey.files.iter().map(|file| {
        let name = Path::new(&*file.name);
        let name = name
            .strip_prefix(folder)
            .unwrap_or(name)
            .display()
            .to_string();
        match &file.finding {
            Finding::Same => format!("{name} same"),
            Finding::Read(content) => format!("{name} {}", content.objects.len()),
            Finding::Empty => format!("{name} empty"),
            Finding::Unreadable(reason) => {
                format!(
                    "{name}:{} {}",
                    reason.origin.as_ref().unwrap().line,
                    reason.message
                )
            }
        }
    });
    files.collect()
}

fn find(paths: &[&Path], recursive: bool, folder: &Path) -> Vec<String> {
    let paths = paths.iter().map(|path| path.to_path_buf()).collect();
    findings(&look(&mut Disk::new(paths, recursive, None)), folder)
}

/// Waits until the time stamps of what was just written count as settled.
fn let_stamps_settle(path: &Path) {
    while !Print::of(&fs::metadata(path).unwrap()).is_settled() {
        std::thread::yield_now();
    }
}

#[test]
fn a_folder_is_its_manifests_by_name_and_nothing_else() {
    let dir = folder();
    let dir = dir.path();
    for name in [
        "b.yml",
        "a.yaml",
        "c.json",
        "notes.txt",
        "yaml",
        ".hidden.yaml",
        "d.yaml~",
        "sub/e.yaml",
        "folder.yaml/f.yaml",
    ] {
        put(&dir.join(name), NODE);
    }
    // YAML is no JSON: nothing could be read from that one.
    assert_eq!(
        find(&[dir], false, dir),
        [
            "a.yaml 1",
            "b.yml 1",
            "c.json 0",
            "folder.yaml:1 can't be read: it is a directory, not a file"
        ]
    );
    assert_eq!(
        find(&[dir], true, dir),
        [
            "a.yaml 1",
            "b.yml 1",
            "c.json 0",
            "folder.yaml/f.yaml 1",
            "sub/e.yaml 1"
        ]
    );
}

#[test]
fn paths_count_in_the_order_given_and_no_file_counts_twice() {
    let dir = folder();
    let dir = dir.path();
    put(&dir.join("a.yaml"), NODE);
    put(&dir.join("b.yaml"), NODE);
    symlink(dir.join("a.yaml"), dir.join("c.yaml")).unwrap();
    let b = dir.join("b.yaml");
    assert_eq!(find(&[&b, dir, &b], false, dir), ["b.yaml 1", "a.yaml 1"]);
}

#[test]
fn loops_of_folders_end() {
    let dir = folder();
    let dir = dir.path();
    put(&dir.join("a.yaml"), NODE);
    symlink(dir, dir.join("again")).unwrap();
    assert_eq!(find(&[dir], true, dir), ["a.yaml 1"]);
}

#[test]
fn what_did_not_change_is_not_read_again() {
    let dir = folder();
    let dir = dir.path();
    put(&dir.join("a.yaml"), NODE);
    put(&dir.join("b.yaml"), NODE);
    let_stamps_settle(&dir.join("b.yaml"));
    let mut disk = Disk::new(vec![dir.to_owned()], false, None);
    assert_eq!(findings(&look(&mut disk), dir), ["a.yaml 1", "b.yaml 1"]);
    assert_eq!(
        findings(&look(&mut disk), dir),
        ["a.yaml same", "b.yaml same"]
    );
    put(&dir.join("b.yaml"), &NODE.replace("n1", "n2"));
    let_stamps_settle(&dir.join("b.yaml"));
    assert_eq!(findings(&look(&mut disk), dir), ["a.yaml same", "b.yaml 1"]);
}

#[test]
fn what_changed_a_moment_ago_is_read_again_because_its_stamps_may_lie() {
    let dir = folder();
    let dir = dir.path();
    let path = dir.join("a.yaml");
    let mut disk = Disk::new(vec![path.clone()], false, None);
    put(&path, NODE);
    let first = findings(&look(&mut disk), dir);
    let settled = Print::of(&fs::metadata(&path).unwrap()).is_settled();
    assert_eq!(first, ["a.yaml 1"]);
    if !settled {
        assert_eq!(findings(&look(&mut disk), dir), ["a.yaml 1"]);
    }
}

#[test]
fn a_file_of_white_space_is_empty() {
    let dir = folder();
    put(&dir.path().join("a.yaml"), " \n\r\n\t");
    assert_eq!(find(&[dir.path()], false, dir.path()), ["a.yaml empty"]);
}

#[test]
fn a_file_that_is_no_text_is_reported_with_the_line() {
    let dir = folder();
    let path = dir.path().join("a.yaml");
    fs::write(&path, b"apiVersion: v1\nkind: \xff\xfe\n").unwrap();
    assert_eq!(
        find(&[&path], false, dir.path()),
        ["a.yaml:2 the file is not UTF-8 text"]
    );
}

#[test]
fn a_file_beyond_the_limit_is_refused() {
    let dir = folder();
    let path = dir.path().join("a.yaml");
    let file = fs::File::create(&path).unwrap();
    file.set_len(SIZE_LIMIT + 1).unwrap();
    assert_eq!(
        find(&[&path], false, dir.path()),
        ["a.yaml:1 the file is too large"]
    );
}

#[test]
fn a_link_into_nowhere_is_unreadable_rather_than_gone() {
    let dir = folder();
    let dir = dir.path();
    symlink("nowhere", dir.join("a.yaml")).unwrap();
    let expected = ["a.yaml:1 can't be read: No such file or directory (os error 2)"];
    assert_eq!(find(&[dir], false, dir), expected);
    assert_eq!(find(&[&dir.join("a.yaml")], false, dir), expected);
}

#[test]
fn a_path_that_is_not_there_is_reported_before_anything_else() {
    let dir = folder();
    let missing = dir.path().join("missing.yaml");
    let disk = Disk::new(
        vec!["-".into(), dir.path().into(), missing.clone()],
        false,
        None,
    );
    let found = disk.missing().unwrap();
    assert_eq!(
        (found.path, found.source.kind()),
        (missing, io::ErrorKind::NotFound)
    );
    assert!(
        Disk::new(vec!["-".into(), dir.path().into()], false, None)
            .missing()
            .is_none()
    );
}

#[test]
fn a_file_that_was_deleted_is_gone_and_the_path_is_reported() {
    let dir = folder();
    let path = dir.path().join("a.yaml");
    put(&path, NODE);
    let mut disk = Disk::new(vec![path.clone()], false, None);
    look(&mut disk);
    fs::remove_file(&path).unwrap();
    let look = look(&mut disk);
    assert_eq!(findings(&look, dir.path()), Vec::<String>::new());
    assert_eq!(look.survey.troubles.len(), 1);
    assert_eq!(look.survey.unlisted, Vec::<Arc<str>>::new());
}

#[test]
fn a_folder_that_vanished_says_nothing_about_its_files() {
    let dir = folder();
    let sub = dir.path().join("sub");
    let file = sub.join("named.yaml");
    put(&file, NODE);
    let mut disk = Disk::new(vec![sub.clone(), file.clone()], false, None);
    look(&mut disk);
    fs::remove_dir_all(&sub).unwrap();
    for _ in 0..2 {
        let look = look(&mut disk);
        assert_eq!(look.survey.unlisted, [name_of(&sub)]);
        // The file that was given by name is unreadable, not deleted.
        assert_eq!(findings(&look, &sub).len(), 1);
    }
}

#[test]
fn our_own_state_is_no_manifest() {
    let dir = folder();
    let dir = dir.path();
    put(&dir.join("state.json"), "{\"version\":1}");
    put(&dir.join("other.json"), "{\"version\":1}");
    let mut disk = Disk::new(vec![dir.to_owned()], false, Some(dir));
    assert_eq!(findings(&look(&mut disk), dir), ["other.json 0"]);
}

#[test]
fn streams_are_read_once() {
    let dir = folder();
    let pipe = dir.path().join("pipe");
    self::pipe(&pipe);
    let writer = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::write(pipe, NODE).unwrap())
    };
    let mut disk = Disk::new(vec!["-".into(), pipe, "-".into()], false, None);
    let mut stdin = io::Cursor::new(NODE);
    let first = findings(&disk.look(&mut stdin), dir.path());
    writer.join().unwrap();
    assert_eq!(first, ["- 1", "pipe 1"]);
    assert_eq!(
        findings(&look(&mut disk), dir.path()),
        ["- same", "pipe same"]
    );
}

/// Makes something at a path.
type Make = fn(&Path);

fn pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

#[test]
fn a_manifest_in_whose_place_something_else_is_can_not_be_read() {
    let put_there: [(&str, Make); 3] = [
        ("a directory", |path| fs::create_dir(path).unwrap()),
        ("a pipe", pipe),
        ("a socket", |path| {
            drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        }),
    ];
    for (what, make) in put_there {
        for by_name in [false, true] {
            let dir = folder();
            let dir = dir.path();
            let file = dir.join("a.yaml");
            put(&file, NODE);
            let given = if by_name { &file } else { dir };
            for recursive in [false, true] {
                put(&file, NODE);
                let mut disk = Disk::new(vec![given.to_owned()], recursive, None);
                assert_eq!(findings(&look(&mut disk), dir), ["a.yaml 1"]);
                fs::remove_file(&file).unwrap();
                make(&file);
                let reported = format!("a.yaml:1 can't be read: it is {what}, not a file");
                for _ in 0..2 {
                    assert_eq!(findings(&look(&mut disk), dir), [reported.as_str()]);
                }
                if fs::remove_file(&file).is_err() {
                    fs::remove_dir(&file).unwrap();
                }
                let gone = look(&mut disk);
                assert_eq!(findings(&gone, dir), [] as [&str; 0]);
                assert!(gone.survey.unlisted.is_empty());
                put(&file, NODE);
                assert_eq!(findings(&look(&mut disk), dir), ["a.yaml 1"]);
            }
        }
    }
}

#[test]
fn every_folder_in_which_a_change_could_matter_is_named() {
    let dir = folder();
    let dir = fs::canonicalize(dir.path()).unwrap();
    put(&dir.join("elsewhere/real.yaml"), NODE);
    put(&dir.join("conf/sub/a.yaml"), NODE);
    symlink(dir.join("elsewhere/real.yaml"), dir.join("conf/link.yaml")).unwrap();
    let conf = dir.join("conf");
    let mut disk = Disk::new(vec![conf.clone()], true, None);
    let folders: Vec<PathBuf> = look(&mut disk).folders.into_iter().collect();
    assert_eq!(
        folders,
        [
            dir.clone(),
            conf.clone(),
            conf.join("sub"),
            dir.join("elsewhere")
        ]
    );
}

/// Puts another folder in the place of one, as a mount or its end does.
fn swap(folder: &Path) {
    let away = folder.with_extension("away");
    fs::rename(folder, &away).unwrap();
    fs::create_dir(folder).unwrap();
}

fn swap_back(folder: &Path) {
    fs::remove_dir(folder).unwrap();
    fs::rename(folder.with_extension("away"), folder).unwrap();
}

#[test]
fn a_folder_in_whose_place_an_empty_one_is_says_nothing_about_its_files() {
    let home = folder();
    let (given, nested) = (home.path().join("given"), home.path().join("given/nested"));
    for (swapped, file) in [(&given, "a.yaml"), (&nested, "nested/b.yaml")] {
        put(&given.join("a.yaml"), NODE);
        put(&given.join("nested/b.yaml"), NODE);
        let mut disk = Disk::new(vec![given.clone()], true, None);
        assert_eq!(look(&mut disk).survey.unlisted, []);
        swap(swapped);
        for _ in 0..2 {
            let found = look(&mut disk);
            assert_eq!(found.survey.unlisted, [name_of(swapped)]);
            assert!(found.survey.troubles.contains_key(&name_of(swapped)));
        }
        swap_back(swapped);
        let found = look(&mut disk);
        assert_eq!(found.survey.unlisted, []);
        assert!(
            findings(&found, &given)
                .iter()
                .any(|it| it.starts_with(file))
        );
        // One that was emptied is the same folder, and so is one that was removed.
        fs::remove_file(given.join(file)).unwrap();
        assert_eq!(look(&mut disk).survey.unlisted, []);
    }
    let mut disk = Disk::new(vec![given.clone()], true, None);
    put(&nested.join("b.yaml"), NODE);
    look(&mut disk);
    fs::remove_dir_all(&nested).unwrap();
    assert_eq!(look(&mut disk).survey.unlisted, []);
    fs::create_dir(&nested).unwrap();
    assert_eq!(look(&mut disk).survey.unlisted, [], "it held nothing since");
}

#[test]
fn a_given_file_that_is_missing_in_another_folder_is_unreadable() {
    let home = folder();
    let (given, file) = (home.path().join("given"), home.path().join("given/a.yaml"));
    put(&file, NODE);
    let mut disk = Disk::new(vec![file.clone()], false, None);
    look(&mut disk);
    swap(&given);
    for _ in 0..2 {
        let found = look(&mut disk);
        let [File { finding, .. }] = &found.survey.files[..] else {
            panic!("{found:?}");
        };
        assert!(matches!(finding, Finding::Unreadable(_)));
    }
    swap_back(&given);
    assert_eq!(findings(&look(&mut disk), &given), ["a.yaml 1"]);
    fs::remove_file(&file).unwrap();
    assert_eq!(findings(&look(&mut disk), &given), [""; 0]);
}

#[test]
fn an_empty_folder_is_unverified_where_something_is_on_record_until_a_manifest_is_in_it() {
    let home = folder();
    let mut disk = Disk::new(vec![home.path().to_owned()], false, None);
    assert_eq!(look(&mut disk).survey.unlisted, []);
    disk.set_unverified();
    assert_eq!(look(&mut disk).survey.unlisted, [name_of(home.path())]);
    put(&home.path().join("empty.yaml"), "# Nothing.\n");
    assert_eq!(look(&mut disk).survey.unlisted, []);
    fs::remove_file(home.path().join("empty.yaml")).unwrap();
    assert_eq!(look(&mut disk).survey.unlisted, []);
}

#[test]
fn an_error_of_a_file_says_nothing_about_whether_it_is_there() {
    let home = folder();
    let file = home.path().join("web.yaml");
    put(&file, NODE);
    let other = io::Error::from(io::ErrorKind::PermissionDenied);
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    fs::remove_file(&file).unwrap();
    assert!(is_gone(&file, &missing()));
    assert!(!is_gone(&file, &other));
    // A name that no file can have: it can't be asked for.
    let endless = home.path().join("x".repeat(300) + ".yaml");
    assert!(!is_gone(&endless, &missing()));
    let mut disk = Disk::new(vec![home.path().to_owned()], true, None);
    symlink(home.path().join("loop"), home.path().join("loop")).unwrap();
    let found = look(&mut disk);
    assert_eq!(found.survey.unlisted, [name_of(&home.path().join("loop"))]);
}
