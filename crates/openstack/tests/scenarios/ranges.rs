//! Source ranges of both families, where the load balancer has addresses of one, or of both.

use landfall_model::rows::{Family, FamilyPolicy};

use crate::create::web;
use crate::rig::Rig;

fn allowed(picture: &crate::rig::Picture) -> Vec<String> {
    let mut ranges = picture.listener_at(80).allowed_cidrs.clone().unwrap();
    ranges.sort();
    ranges
}

fn mixed() -> landfall_testkit::build::ServiceBuilder {
    web()
        .source_range("10.0.0.0/8")
        .source_range("2001:db8:1::/48")
}

#[tokio::test(start_paused = true)]
async fn ranges_of_a_family_without_an_address_are_left_out_and_named() {
    let mut rig = Rig::new("");
    rig.apply(mixed()).await;
    assert_eq!(allowed(&rig.picture().await), ["10.0.0.0/8"]);
    assert_eq!(rig.published("web").len(), 1);
    let reported = rig.cluster.messages("LoadBalancerSourceRangesIgnored");
    assert_eq!(reported.len(), 1, "{:?}", rig.cluster.events());
    assert!(reported[0].contains("2001:db8:1::/48"), "{reported:?}");
    assert!(!reported[0].contains("10.0.0.0/8"), "{reported:?}");
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    // The same for ranges that come to a load balancer that is there.
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.forget();
    rig.apply(mixed()).await;
    assert_eq!(allowed(&rig.picture().await), ["10.0.0.0/8"]);
    assert_eq!(rig.writes().len(), 1, "{:?}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn ranges_of_the_other_family_alone_let_no_client_in() {
    let only_six = || web().source_range("2001:db8:1::/48");
    let no_client = ["255.255.255.255/32"];
    let mut rig = Rig::new("");
    rig.apply(only_six()).await;
    assert_eq!(allowed(&rig.picture().await), no_client);
    let reported = rig.cluster.messages("LoadBalancerSourceRangesIgnored");
    assert!(
        reported[0].contains("no client may connect"),
        "{reported:?}"
    );
    // Every client was let in before: that ends, too.
    let mut rig = Rig::new("");
    rig.apply(web()).await;
    rig.apply(only_six()).await;
    assert_eq!(allowed(&rig.picture().await), no_client);
    rig.forget();
    rig.restart().await;
    assert_eq!(rig.writes(), Vec::<String>::new());
    rig.apply(web()).await;
    assert_eq!(allowed(&rig.picture().await), ["0.0.0.0/0"]);
}

#[tokio::test(start_paused = true)]
async fn with_addresses_of_both_families_both_stay() {
    let mut rig = Rig::new("");
    let cidr = "2001:db8::/64".parse().unwrap();
    rig.sim.add_subnet(&rig.sim.network(), "sub6", cidr, &[]);
    let families = [Family::V4, Family::V6];
    let dual = |service: landfall_testkit::build::ServiceBuilder| {
        service.families(&families, FamilyPolicy::RequireDualStack)
    };
    rig.apply(dual(mixed())).await;
    assert_eq!(
        allowed(&rig.picture().await),
        ["10.0.0.0/8", "2001:db8:1::/48"]
    );
    assert_eq!(
        rig.cluster.messages("LoadBalancerSourceRangesIgnored"),
        Vec::<String>::new()
    );
    // Every client of one family is not every client.
    rig.apply(dual(web().source_range("0.0.0.0/0"))).await;
    assert_eq!(allowed(&rig.picture().await), ["0.0.0.0/0"]);
    rig.apply(dual(web())).await;
    assert_eq!(allowed(&rig.picture().await), ["0.0.0.0/0", "::/0"]);
    rig.apply(dual(web().source_range("0.0.0.0/0"))).await;
    assert_eq!(allowed(&rig.picture().await), ["0.0.0.0/0"]);
}
