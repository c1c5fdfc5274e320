//! What is served while files come, go and break.

use landfall_model::reason::Severity;
use proptest::prelude::*;

use super::*;
use crate::manifest;

fn name(text: &str) -> Arc<str> {
    text.into()
}

fn read(file: &str, text: &str) -> File {
    File {
        name: name(file),
        finding: Finding::Read(manifest::read(&name(file), text)),
    }
}

fn found(file: &str, finding: Finding) -> File {
    File {
        name: name(file),
        finding,
    }
}

fn survey(files: impl IntoIterator<Item = File>) -> Survey {
    Survey {
        files: files.into_iter().collect(),
        ..Survey::default()
    }
}

fn service(name: &str, port: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: \
         {port}}}]}}\n"
    )
}

/// Names and first ports of the Services.
fn served(catalog: &Catalog) -> Vec<String> {
    catalog
        .merged()
        .objects
        .into_values()
        .map(|object| match object {
            Object::Service(row) => format!("{}:{}", row.key.name(), row.ports[0].port),
            other => other.key().to_string(),
        })
        .collect()
}

fn problems(catalog: &Catalog) -> Vec<String> {
    let problems = catalog.merged().problems;
    problems
        .values()
        .flatten()
        .map(ToString::to_string)
        .collect()
}

fn catalog(surveys: impl IntoIterator<Item = Survey>) -> Catalog {
    let mut catalog = Catalog::default();
    for survey in surveys {
        catalog.update(survey);
    }
    catalog
}

const UNREADABLE: &str = "no permission";

fn unreadable() -> Finding {
    Finding::Unreadable(Reason::error(Code::InvalidManifest, UNREADABLE))
}

#[test]
fn what_a_readable_file_leaves_out_is_withdrawn() {
    let catalog = catalog([
        survey([read(
            "a.yaml",
            &(service("web", "80") + &service("dns", "53")),
        )]),
        survey([read("a.yaml", &service("dns", "54"))]),
    ]);
    assert_eq!(served(&catalog), ["dns:54"]);
    assert_eq!(problems(&catalog), Vec::<String>::new());
}

#[test]
fn a_file_that_is_gone_withdraws_everything_in_it() {
    let catalog = catalog([
        survey([
            read("a.yaml", &service("web", "80")),
            read("b.yaml", &service("dns", "53")),
        ]),
        survey([found("b.yaml", Finding::Same)]),
    ]);
    assert_eq!(served(&catalog), ["dns:53"]);
}

#[test]
fn a_broken_document_withdraws_nothing_and_what_can_be_read_is_taken() {
    let before = service("web", "80") + &service("dns", "53");
    let after = service("dns", "54") + "---\nkind: [\n";
    let catalog = catalog([
        survey([read("a.yaml", &before)]),
        survey([read("a.yaml", &after)]),
    ]);
    assert_eq!(served(&catalog), ["dns:54", "web:80"]);
    let [broken, kept] = problems(&catalog).try_into().unwrap();
    let (broken, kept): (String, String) = (broken, kept);
    assert!(broken.starts_with("a.yaml:7: not YAML: "), "{broken}");
    assert_eq!(
        kept,
        "a.yaml:1: the newest version has errors: Service default/web stays as it was"
    );
}

/// What each Service says of a newer version of it that can't be used.
fn outdated(catalog: &Catalog) -> Vec<String> {
    let objects = catalog.merged().objects.into_values();
    let rows = objects.filter_map(|object| match object {
        Object::Service(row) => Some(row),
        _ => None,
    });
    rows.filter(|row| !row.newest_invalid().is_empty())
        .map(|row| format!("{}: {}", row.key.name(), row.newest_invalid()[0]))
        .collect()
}

#[test]
fn a_service_says_itself_why_its_newest_version_is_not_served() {
    let before = service("web", "80") + &service("dns", "53");
    let wrong_type = service("web", "eighty") + &service("dns", "53");
    let mut catalog = catalog([
        survey([read("a.yaml", &before)]),
        survey([read("a.yaml", &wrong_type)]),
    ]);
    let [web] = outdated(&catalog).try_into().unwrap();
    let web: String = web;
    assert!(
        web.starts_with("web: a.yaml:5: spec.ports[0].port: \"eighty\": "),
        "{web}"
    );
    // A look that finds nothing new changes nothing.
    catalog.update(survey([found("a.yaml", Finding::Same)]));
    assert_eq!(outdated(&catalog), [web]);

    catalog.update(survey([read("a.yaml", "kind: [\n")]));
    let both = outdated(&catalog);
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both[0].contains("a.yaml:"), "{both:?}");

    catalog.update(survey([found("a.yaml", unreadable())]));
    assert_eq!(
        outdated(&catalog),
        [format!("dns: {UNREADABLE}"), format!("web: {UNREADABLE}")]
    );

    catalog.update(survey([read("a.yaml", &before)]));
    assert_eq!(outdated(&catalog), Vec::<String>::new());
}

#[test]
fn a_healed_file_is_taken_as_it_is() {
    let catalog = catalog([
        survey([read(
            "a.yaml",
            &(service("web", "80") + &service("dns", "53")),
        )]),
        survey([read("a.yaml", "kind: [\n")]),
        survey([read("a.yaml", &service("dns", "54"))]),
    ]);
    assert_eq!(served(&catalog), ["dns:54"]);
    assert_eq!(problems(&catalog), Vec::<String>::new());
}

#[test]
fn an_object_with_an_error_keeps_its_last_good_version_and_others_go_on() {
    let before = service("web", "80") + &service("dns", "53") + &service("old", "1");
    let after = service("web", "70000") + &service("dns", "54");
    let catalog = catalog([
        survey([read("a.yaml", &before)]),
        survey([read("a.yaml", &after)]),
    ]);
    assert_eq!(served(&catalog), ["dns:54", "web:80"]);
}

#[test]
fn an_object_that_was_never_good_is_not_served() {
    let catalog = catalog([survey([read("a.yaml", &service("web", "70000"))])]);
    assert_eq!(served(&catalog), Vec::<String>::new());
    assert_eq!(problems(&catalog).len(), 1);
}

#[test]
fn several_broken_versions_in_a_row_keep_the_last_good_one() {
    let broken = || survey([read("a.yaml", "kind: [\n")]);
    let catalog = catalog([
        survey([read("a.yaml", &service("web", "80"))]),
        broken(),
        survey([read("a.yaml", &service("web", "70000"))]),
        survey([found("a.yaml", unreadable())]),
        survey([found("a.yaml", Finding::Empty)]),
        broken(),
    ]);
    assert_eq!(served(&catalog), ["web:80"]);
}

#[test]
fn an_emptied_file_withdraws_nothing_and_says_so() {
    let catalog = catalog([
        survey([
            read("a.yaml", &service("web", "80")),
            found("b.yaml", Finding::Empty),
        ]),
        survey([
            found("a.yaml", Finding::Empty),
            found("b.yaml", Finding::Empty),
        ]),
    ]);
    assert_eq!(served(&catalog), ["web:80"]);
    assert_eq!(
        problems(&catalog),
        [
            "a.yaml:1: the file is empty: Service default/web stays as it was; to remove its \
            objects, delete the file or write a comment into it"
        ]
    );
}

#[test]
fn a_file_with_nothing_but_a_comment_withdraws_what_it_held() {
    let catalog = catalog([
        survey([read("a.yaml", &service("web", "80"))]),
        survey([read("a.yaml", "# nothing any more\n")]),
    ]);
    assert_eq!(served(&catalog), Vec::<String>::new());
}

#[test]
fn an_unreadable_file_withdraws_nothing() {
    let catalog = catalog([
        survey([read("a.yaml", &service("web", "80"))]),
        survey([found("a.yaml", unreadable())]),
    ]);
    assert_eq!(served(&catalog), ["web:80"]);
    assert_eq!(
        problems(&catalog),
        [
            UNREADABLE,
            "a.yaml:1: the file can't be read: Service default/web stays as it was"
        ]
    );
}

#[test]
fn a_folder_that_can_not_be_listed_withdraws_nothing_in_it() {
    let trouble = Reason::error(Code::InvalidManifest, UNREADABLE);
    let away = Survey {
        files: vec![found("other.yaml", Finding::Same)],
        troubles: BTreeMap::from([(name("dir"), trouble)]),
        unlisted: vec![name("dir")],
    };
    let catalog = catalog([
        survey([
            read("dir/a.yaml", &service("web", "80")),
            read("dir/sub/b.yaml", &service("dns", "53")),
            read("dir-2/c.yaml", &service("old", "1")),
            read("other.yaml", &service("other", "2")),
        ]),
        away,
    ]);
    assert_eq!(served(&catalog), ["dns:53", "other:2", "web:80"]);
    assert_eq!(problems(&catalog), [UNREADABLE]);
}

#[test]
fn of_two_documents_for_one_object_the_first_wins_and_both_places_are_reported() {
    let files = || {
        [
            read("b.yaml", &service("web", "80")),
            read("a.yaml", &(service("dns", "53") + &service("web", "81"))),
        ]
    };
    let catalog = catalog([survey(files())]);
    assert_eq!(served(&catalog), ["dns:53", "web:80"]);
    let reasons = catalog.merged().problems.remove("a.yaml").unwrap();
    assert_eq!(reasons.len(), 1);
    assert_eq!(
        (reasons[0].code, reasons[0].severity),
        (Code::DuplicateObject, Severity::Error)
    );
    assert_eq!(
        reasons[0].to_string(),
        "a.yaml:7: Service default/web is already defined in b.yaml:2; this one is ignored; remove \
        one of them"
    );
}

#[test]
fn the_second_document_takes_over_when_the_first_is_gone() {
    let catalog = catalog([
        survey([
            read("a.yaml", &service("web", "80")),
            read("b.yaml", &service("web", "81")),
        ]),
        survey([found("b.yaml", Finding::Same)]),
    ]);
    assert_eq!(served(&catalog), ["web:81"]);
    assert_eq!(problems(&catalog), Vec::<String>::new());
}

#[test]
fn an_object_twice_in_one_file_is_reported_with_both_lines() {
    let text = service("web", "80") + &service("web", "81");
    let mut catalog = catalog([survey([read("a.yaml", &text)])]);
    assert_eq!(served(&catalog), ["web:80"]);
    assert!(
        problems(&catalog)[0]
            .starts_with("a.yaml:7: Service default/web is already defined in a.yaml:2")
    );
    // Kept versions are the ones that were served.
    catalog.update(survey([read("a.yaml", "kind: [\n")]));
    assert_eq!(served(&catalog), ["web:80"]);
}

#[test]
fn an_object_that_moved_out_of_a_file_that_broke_is_taken_from_its_new_place() {
    let catalog = catalog([
        survey([read("a.yaml", &service("web", "80"))]),
        survey([
            read("a.yaml", "kind: [\n"),
            read("b.yaml", &service("web", "81")),
        ]),
    ]);
    assert_eq!(served(&catalog), ["web:81"]);
    assert!(
        problems(&catalog)
            .iter()
            .all(|reason| !reason.contains("already"))
    );
}

#[test]
fn the_same_name_of_two_kinds_is_two_objects() {
    let text = "apiVersion: v1\nkind: Node\nmetadata: {name: web}\n---\napiVersion: v1\nkind: \
                Namespace\nmetadata: {name: web}\n";
    let catalog = catalog([survey([read("a.yaml", text)])]);
    assert_eq!(served(&catalog), ["Namespace web", "Node web"]);
}

#[test]
fn a_service_may_hide_only_where_something_could_not_be_read() {
    let key = ObjectKey::Service(landfall_model::ServiceKey::new("default", "web"));
    let may_hide = |survey: Survey| catalog([survey]).unreadable_parts().may_hide(&key);
    assert!(!may_hide(survey([read("a.yaml", &service("dns", "53"))])));
    assert!(!may_hide(survey([read(
        "a.yaml",
        &service("dns", "70000")
    )])));
    assert!(may_hide(survey([found("a.yaml", Finding::Empty)])));
    assert!(may_hide(survey([read("a.yaml", &service("web", "70000"))])));
    assert!(may_hide(survey([read("a.yaml", "kind: [\n")])));
    assert!(may_hide(survey([found("a.yaml", unreadable())])));
    assert!(may_hide(Survey {
        unlisted: vec![name("dir")],
        ..Survey::default()
    }));
}

#[test]
fn many_kept_objects_are_reported_by_number() {
    let before: String = (0..9)
        .map(|index| service(&format!("web{index}"), "80"))
        .collect();
    let catalog = catalog([
        survey([read("a.yaml", &before)]),
        survey([read("a.yaml", "[")]),
    ]);
    assert_eq!(
        problems(&catalog)[1],
        "a.yaml:1: the newest version has errors: Service default/web0, Service default/web1, \
         Service default/web2 and 6 more stay as they were"
    );
}

#[test]
fn a_pool_may_hide_only_where_something_that_may_be_one_could_not_be_read() {
    let may_hide = |survey: Survey| catalog([survey]).may_hide_pools();
    let pool = |name: &str| {
        format!(
            "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {{name: {name}}}\n\
             spec: {{addresses: [192.0.2.0/24]}}\n"
        )
    };
    assert!(!may_hide(survey([read("a.yaml", &pool("public"))])));
    let service = service("web", "70000");
    assert!(
        !may_hide(survey([read("a.yaml", &service)])),
        "it is known to be a Service"
    );
    assert!(!may_hide(survey([found("a.yaml", Finding::Empty)])));
    assert!(may_hide(survey([read("a.yaml", &pool("PUBLIC"))])));
    assert!(may_hide(survey([read("a.yaml", "kind: [\n")])));
    assert!(may_hide(survey([found("a.yaml", unreadable())])));
}

#[test]
fn a_slip_in_the_kind_withdraws_nothing() {
    let before = service("web", "80");
    for after in [
        before.replace("kind: Service", "kind: Servce"),
        before.replace("apiVersion: v1", "apiVersion: v2"),
    ] {
        let catalog = catalog([
            survey([read("a.yaml", &before)]),
            survey([read("a.yaml", &after)]),
        ]);
        assert_eq!(served(&catalog), ["web:80"], "{after}");
        assert_eq!(outdated(&catalog).len(), 1, "{after}");
    }
}

#[test]
fn what_is_remembered_and_in_no_readable_file_has_a_reason() {
    let key = ServiceKey::new("default", "web");
    let broken = catalog([survey([read("a.yaml", &service("web", "eighty"))])]);
    let [own] = broken.why_hidden(&key).try_into().unwrap();
    let own: Reason = own;
    assert_eq!(own.field.as_deref(), Some("spec.ports[0].port"));
    let torn = catalog([survey([read("a.yaml", "kind: [\n")])]);
    assert_eq!(torn.why_hidden(&key).len(), 1);
    let sound = catalog([survey([read("a.yaml", &service("dns", "53"))])]);
    assert_eq!(sound.why_hidden(&key), []);
}

/// What a look finds of one file; `None`: it is not there.
#[derive(Clone, Debug)]
enum Sight {
    Same,
    Empty,
    Unreadable,
    /// Services and their ports, and whether there is a document that can't be read.
    Text(Vec<(u8, u16)>, bool),
}

fn sight() -> impl Strategy<Value = Option<Sight>> {
    let text = prop::collection::vec((0_u8..4, 80_u16..83), 0..4);
    prop_oneof![
        3 => Just(Some(Sight::Same)),
        1 => Just(Some(Sight::Empty)),
        1 => Just(Some(Sight::Unreadable)),
        4 => (text, any::<bool>()).prop_map(|(all, broken)| Some(Sight::Text(all, broken))),
        2 => Just(None),
    ]
}

/// What is found of `one/0.yaml`, `two/1.yaml` and so on, in one order or the other, and whether
/// the folder `one` can't be listed.
fn look() -> impl Strategy<Value = ([Option<Sight>; 4], bool, bool)> {
    (
        [sight(), sight(), sight(), sight()],
        any::<bool>(),
        any::<bool>(),
    )
}

fn seen(index: usize, sight: &Sight) -> File {
    let folder = if index < 2 { "one" } else { "two" };
    let file = format!("{folder}/{index}.yaml");
    match sight {
        Sight::Same => found(&file, Finding::Same),
        Sight::Empty => found(&file, Finding::Empty),
        Sight::Unreadable => found(&file, unreadable()),
        Sight::Text(services, broken) => {
            let one =
                |(number, port): &(u8, u16)| service(&format!("s{number}"), &port.to_string());
            let mut text: String = services.iter().map(one).collect();
            if *broken {
                text += "---\nkind: [\n";
            }
            read(&file, &(text + "# end\n"))
        }
    }
}

proptest! {
    /// The changes alone add up to what laying all files over each other gives.
    #[test]
    fn changes_add_up_to_what_all_files_say_together(
        looks in prop::collection::vec((look(), any::<bool>()), 0..12),
    ) {
        let mut catalog = Catalog::default();
        let mut known: BTreeMap<ObjectKey, Object> = BTreeMap::new();
        for ((sights, reversed, unlisted), is_reported) in looks {
            let mut files: Vec<File> = (0..).zip(&sights)
                .filter_map(|(index, sight)| Some(seen(index, sight.as_ref()?)))
                .filter(|file| !unlisted || !file.name.starts_with("one"))
                .collect();
            if reversed {
                files.reverse();
            }
            let unlisted = unlisted.then(|| name("one")).into_iter().collect();
            catalog.update(Survey { files, unlisted, ..Survey::default() });
            if is_reported {
                for (key, object) in catalog.changes() {
                    match object {
                        Some(object) => known.insert(key, object),
                        None => known.remove(&key),
                    };
                }
                catalog.settle();
                prop_assert!(catalog.changes().is_empty());
                let all = catalog.overlay(None);
                prop_assert_eq!(&known, &all.objects);
                let contested = catalog.overlay(Some(&catalog.contested));
                prop_assert_eq!(contested.duplicates, all.duplicates);
            }
        }
    }
}
