use landfall_model::ServiceKey;

use super::*;

fn removal() -> Intent {
    Intent::removal(ServiceKey::new("default", "web"), Uid::new("1"))
}

fn bounds() -> Bounds {
    Bounds {
        members: MemberRules::default(),
        limits: Limits::default(),
    }
}

#[tokio::test]
async fn what_another_provider_has_read_is_refused_and_never_taken_for_nothing_to_do() {
    let local = Setup::local("local").detached(Mode::Offline, bounds());
    let want = removal();
    let seen = local.observe(&want).await.unwrap();
    assert!(local.plan(&want, &seen).unwrap().is_empty());
    let refused = local.plan(&want, &Observed::Nothing).unwrap_err();
    assert_eq!(refused[0].code, Code::ProviderFailed);
    let standing = local.status(&want, &Observed::Nothing);
    assert_eq!(standing.waiting.len(), 1);
}

#[tokio::test]
async fn a_cloud_that_is_offline_is_not_contacted_and_plans_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.conf");
    // Nothing answers there, so that a request would fail.
    let text = "[Global]\nauth-url = http://127.0.0.1:1/v3\nuser-id = u\npassword = p\n\
                tenant-id = t\n";
    std::fs::write(&path, text).unwrap();
    let config = of_cloud_conf(path).instances.remove(0).provider;
    let args = InstancesArgs::default();
    let setup = Setup::read("cloud", &config, &Surroundings::default(), &args).unwrap();
    let want = removal();
    let offline = setup.detached(Mode::Offline, bounds());
    let seen = offline.observe(&want).await.unwrap();
    assert!(offline.plan(&want, &seen).unwrap().is_empty());
    assert_eq!(offline.audit().await.unwrap(), []);
    let reading = setup.detached(Mode::ReadOnly, bounds());
    assert!(reading.observe(&want).await.is_err());
}
