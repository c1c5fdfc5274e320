//! Every call, from creation to deletion.

use landfall_exoscale::objects::{
    HealthcheckResult, Id, LoadBalancerField, LoadBalancerState, ManagerType, Quota, ServiceState,
    UpdateLoadBalancer, UpdateService,
};
use landfall_testkit::exoscale::Sim;

use crate::rig::{cloud, end, nlb, service};

#[tokio::test(start_paused = true)]
async fn an_nlb_lives_from_creation_to_deletion() {
    let sim = Sim::new();
    let pool = sim.add_pool("web");
    sim.add_instance("web-1", [192, 0, 2, 1].into(), Some(&pool));
    let cloud = cloud(&sim);
    let begun = cloud.create_load_balancer(&nlb("k8s-uid")).await.unwrap();
    let creating = cloud.load_balancers().await.unwrap().remove(0);
    assert_eq!(creating.state, LoadBalancerState::Creating);
    assert_eq!(creating.ip, None);
    let id = end(&cloud, begun).await.unwrap();
    let lb = cloud.load_balancer(&id).await.unwrap().unwrap();
    assert_eq!(lb.state, LoadBalancerState::Running);
    assert_eq!((lb.ip.is_some(), lb.name.as_str()), (true, "k8s-uid"));

    let update = UpdateLoadBalancer {
        description: Some("déjà vu".to_owned()),
        labels: Some([("owner".to_owned(), "uid".to_owned())].into()),
        ..UpdateLoadBalancer::default()
    };
    end(
        &cloud,
        cloud.update_load_balancer(&id, &update).await.unwrap(),
    )
    .await;
    let lb = cloud.load_balancer(&id).await.unwrap().unwrap();
    assert_eq!(
        (lb.description.as_str(), lb.labels["owner"].as_str()),
        ("déjà vu", "uid")
    );
    let field = LoadBalancerField::Description;
    end(&cloud, cloud.reset_load_balancer(&id, field).await.unwrap()).await;
    let lb = cloud.load_balancer(&id).await.unwrap().unwrap();
    assert_eq!((lb.description.as_str(), lb.labels.len()), ("", 1));

    let begun = cloud
        .create_service(&id, &service(80, &pool))
        .await
        .unwrap();
    assert_eq!(
        end(&cloud, begun).await.as_ref(),
        Some(&id),
        "it names the NLB"
    );
    let web = cloud
        .load_balancer(&id)
        .await
        .unwrap()
        .unwrap()
        .services
        .remove(0);
    assert_eq!(
        (web.port, web.target_port, &web.state),
        (80, 30_080, &ServiceState::Running)
    );
    assert_eq!(web.instance_pool.unwrap().id.as_str(), pool);
    let healthy = web.healthcheck_status.first().unwrap().status.clone();
    assert_eq!(healthy, Some(HealthcheckResult::Success));
    let update = UpdateService {
        target_port: Some(31_000),
        description: Some("web".to_owned()),
        ..UpdateService::default()
    };
    let begun = cloud.update_service(&id, &web.id, &update).await.unwrap();
    end(&cloud, begun).await;
    let begun = cloud.reset_service_description(&id, &web.id).await.unwrap();
    end(&cloud, begun).await;
    let changed = cloud
        .load_balancer(&id)
        .await
        .unwrap()
        .unwrap()
        .services
        .remove(0);
    assert_eq!(
        (changed.target_port, changed.description.as_str()),
        (31_000, "")
    );
    assert_eq!(changed.healthcheck, web.healthcheck);

    let begun = cloud.delete_service(&id, &web.id).await.unwrap().unwrap();
    end(&cloud, begun).await;
    assert_eq!(
        cloud.delete_service(&id, &web.id).await.unwrap(),
        None,
        "gone"
    );
    let begun = cloud.delete_load_balancer(&id).await.unwrap().unwrap();
    end(&cloud, begun).await;
    assert_eq!(cloud.load_balancer(&id).await.unwrap(), None);
    assert_eq!(cloud.delete_load_balancer(&id).await.unwrap(), None, "gone");
    assert_eq!(cloud.load_balancers().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn pools_are_found_by_instance_and_by_cluster() {
    let sim = Sim::new();
    let pool = sim.add_pool("web");
    let member = sim.add_instance("web-1", [192, 0, 2, 1].into(), Some(&pool));
    let alone = sim.add_instance("alone", [192, 0, 2, 2].into(), None);
    let nodepools = sim.add_cluster("prod", &[("Web", &pool)]);
    let cloud = cloud(&sim);
    let found = cloud.instance(&Id::from(member.as_str())).await.unwrap();
    let manager = found.unwrap().manager.unwrap();
    assert_eq!(
        (manager.id.as_str(), manager.kind),
        (pool.as_str(), ManagerType::InstancePool)
    );
    let other = cloud.instance(&Id::from(alone.as_str())).await.unwrap();
    assert_eq!(other.unwrap().manager, None);
    assert_eq!(cloud.instances().await.unwrap().len(), 2);
    let it = cloud
        .instance_pool(&Id::from(pool.as_str()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((it.name.as_str(), it.instances.len()), ("web", 1));
    assert_eq!(it.manager.unwrap().kind, ManagerType::SksNodepool);
    assert_eq!(cloud.instance_pools().await.unwrap().len(), 1);
    let nodepool = Id::from(nodepools[0].as_str());
    assert_eq!(cloud.instance_pool(&nodepool).await.unwrap(), None);
    let cluster = cloud.sks_clusters().await.unwrap().remove(0);
    assert_eq!(cluster.nodepools[0].id, nodepool);
    assert_eq!(
        cluster.nodepools[0]
            .instance_pool
            .as_ref()
            .unwrap()
            .id
            .as_str(),
        pool
    );
    sim.add_load_balancer("other");
    let quota = cloud.load_balancer_quota().await.unwrap();
    assert_eq!(
        quota,
        Some(Quota {
            limit: 1000,
            usage: 1
        })
    );
}

#[tokio::test(start_paused = true)]
async fn answers_may_hold_more_or_less_than_described() {
    let sim = Sim::new();
    let pool = sim.add_pool("web");
    let lb = sim.add_load_balancer("lb");
    sim.add_service(&lb, "a", 80, &pool);
    sim.configure(|it| (it.full_pools, it.null_health) = (true, true));
    let cloud = cloud(&sim);
    let lb = cloud.load_balancers().await.unwrap().remove(0);
    assert_eq!(
        lb.services[0].instance_pool.as_ref().unwrap().id.as_str(),
        pool
    );
    assert_eq!(lb.services[0].healthcheck_status, []);
}

#[tokio::test(start_paused = true)]
async fn an_id_can_not_lead_to_another_object() {
    let sim = Sim::new();
    let cloud = cloud(&sim);
    cloud.load_balancers().await.unwrap();
    sim.forget_calls();
    for id in ["", "..", "a/b", "a?b", "a b"] {
        assert!(cloud.load_balancer(&Id::from(id)).await.is_err(), "{id:?}");
    }
    assert_eq!(sim.calls().len(), 0);
}
