//! The simulated cloud as a server on loopback.

use landfall_exoscale::client::{Begun, Cloud};
use landfall_testkit::exoscale::{Fate, Sim};

use crate::rig::{config, nlb};

#[tokio::test]
async fn the_client_works_over_the_network() {
    let sim = Sim::new();
    let served = sim.serve(0).await.unwrap();
    assert_eq!(sim.endpoint(), served.endpoint);
    let cloud = Cloud::new(config(&sim)).unwrap();
    cloud.check().await.unwrap();
    sim.next_change(Fate::default().at_once());
    let begun = cloud.create_load_balancer(&nlb("a")).await.unwrap();
    assert!(matches!(begun, Begun::Done(Some(_))));
    assert_eq!(cloud.load_balancers().await.unwrap()[0].name, "a");
}
