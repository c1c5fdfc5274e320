//! Broken manifests.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use landfall_testkit::fuzz::{Random, Seeds, run};

use super::objects::read;

/// The manifests that users begin with.
fn examples() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let manifests = files.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let mut texts: Vec<_> = manifests.map(|path| fs::read(path).unwrap()).collect();
    texts.sort();
    assert!(texts.len() > 3, "{} examples", texts.len());
    texts.push(br#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1"}]}"#.to_vec());
    texts
}

#[test]
fn fuzz_manifests() {
    let messages = examples();
    let seeds = Seeds {
        messages: &messages,
        words: &[
            b"---\n",
            b"\n  ",
            b": ",
            b"- ",
            b"&a ",
            b"*a",
            b"<<: *a",
            b"!!binary ",
            b"|2+\n",
            b">-\n",
            b"{",
            b"[[[[[[[[",
            b"\t",
            b"\"\\u0000\"",
            b"\xef\xbb\xbf",
            b"\xff",
            b"0x7fffffffffffffff",
            b"-1",
            b"1e999",
            b"~",
            b"2001-12-14t21:59:43.10-05:00",
            b"kind: List\nitems:\n",
            b"nodePort: 65536",
            b"addresses: [0.0.0.0/0, ::/0, 1.1.1.1-0.0.0.0]",
        ],
        longest: 8 * 1024,
    };
    let names: [Arc<str>; 2] = ["a.yaml".into(), "a.json".into()];
    run("manifests", |random: &mut Random| {
        let text = random.broken(seeds);
        let name = &names[random.below(16) / 15];
        let content = read(name, &String::from_utf8_lossy(&text));
        for reason in &content.reasons {
            assert!(!reason.message.is_empty());
            let origin = reason.origin.as_ref().unwrap();
            assert!(origin.line >= 1, "{reason}");
        }
    });
}
