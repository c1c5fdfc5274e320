//! Credentials on disk.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

async fn read(path: &Path) -> Result<(String, String), CredentialsError> {
    let read = CredentialsSource::Path(path.to_owned()).read().await?;
    Ok((read.key, read.secret.expose_secret().to_owned()))
}

#[expect(clippy::unnecessary_wraps, reason = "as it is compared")]
fn pair(key: &str, secret: &str) -> Result<(String, String), CredentialsError> {
    Ok((key.to_owned(), secret.to_owned()))
}

#[tokio::test]
async fn a_file_of_json_holds_both_and_may_hold_more() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("exoscale.json");
    fs::write(&path, r#"{"api_key":"EXO1","api_secret":"s1","name":"ci"}"#).unwrap();
    assert_eq!(read(&path).await, pair("EXO1", "s1"));
    let next = dir.path().join("next");
    fs::write(&next, r#"{"api_key":"EXO2","api_secret":"s2"}"#).unwrap();
    fs::rename(&next, &path).unwrap();
    assert_eq!(read(&path).await, pair("EXO2", "s2"));
}

#[tokio::test]
async fn the_volume_of_a_secret_is_read_again_after_its_link_was_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let generation = |name: &str, key: &str, secret: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("api-key"), key).unwrap();
        fs::write(path.join("api-secret"), format!("{secret}\n")).unwrap();
        let json = format!(r#"{{"api_key":"{key}","api_secret":"{secret}"}}"#);
        fs::write(path.join("exoscale.json"), json).unwrap();
        symlink(name, dir.path().join("..next")).unwrap();
        fs::rename(dir.path().join("..next"), dir.path().join("..data")).unwrap();
    };
    generation("..1", "EXO1", "s1");
    for file in ["api-key", "api-secret", "exoscale.json"] {
        symlink(Path::new("..data").join(file), dir.path().join(file)).unwrap();
    }
    let json = dir.path().join("exoscale.json");
    assert_eq!(read(dir.path()).await, pair("EXO1", "s1"));
    assert_eq!(read(&json).await, pair("EXO1", "s1"));
    generation("..2", "EXO2", "s2");
    fs::remove_dir_all(dir.path().join("..1")).unwrap();
    assert_eq!(read(dir.path()).await, pair("EXO2", "s2"));
    assert_eq!(read(&json).await, pair("EXO2", "s2"));
}

#[tokio::test]
async fn a_directory_without_generations_is_read_too() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("api-key"), "EXO1\n").unwrap();
    fs::write(dir.path().join("api-secret"), "s1\n").unwrap();
    assert_eq!(read(dir.path()).await, pair("EXO1", "s1"));
}

#[tokio::test]
async fn what_is_wrong_is_named_without_the_secret() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    for (content, part) in [
        (r#"{"api_key":"EXO1","api_secret":["hunter2"]}"#, "not JSON"),
        (r#"{"api_key":"EXO1 hunter2"#, "not JSON"),
        (r#"{"api_key":"","api_secret":"hunter2"}"#, "empty"),
        (r#"{"api_key":"a\nb","api_secret":"hunter2"}"#, "header"),
    ] {
        fs::write(&path, content).unwrap();
        let error = read(&path).await.unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("/f"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let missing = read(&dir.path().join("none")).await.unwrap_err();
    assert!(matches!(missing, CredentialsError::Unreadable { .. }));
    let given = Credentials {
        key: "EXO1".to_owned(),
        secret: SecretString::from("hunter2"),
    };
    assert!(!format!("{given:?}").contains("hunter2"));
}
