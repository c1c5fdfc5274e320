//! A provider with pools and advertisements, and Services that are reconciled.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_engine::{World, resolve};
use landfall_metal::Metal;
use landfall_model::ServiceKey;
use landfall_model::intent::Intent;
use landfall_model::provider::{Applied, Provider, ProviderStatus};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::{Cooling, Fact, PoolRow, ResourceKind, ResourceRow, ServiceRow};
use landfall_testkit::{slice, svc};
use serde_json::{Value, json};

/// A site of bare metal.
pub struct Site {
    pub provider: Metal,
    pub world: World,
}

pub fn pool(name: &str, ranges: &[&str]) -> Arc<PoolRow> {
    Arc::new(PoolRow {
        name: name.to_owned(),
        addresses: ranges.iter().map(|it| (*it).to_owned()).collect(),
        auto_assign: true,
        ..PoolRow::default()
    })
}

pub fn resource(kind: ResourceKind, name: &str, spec: Value) -> Arc<ResourceRow> {
    Arc::new(ResourceRow {
        kind,
        api_version: "metallb.io/v1beta1".to_owned(),
        key: ServiceKey::new("metallb-system", name),
        uid: None,
        generation: None,
        created: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        spec,
        accepted: None,
        cooling: Cooling::default(),
        source: None,
    })
}

pub fn l2(spec: Value) -> Arc<ResourceRow> {
    resource(ResourceKind::L2Advertisement, "l2", spec)
}

pub fn bgp() -> Arc<ResourceRow> {
    resource(ResourceKind::BgpAdvertisement, "bgp", json!({}))
}

/// A Service with a port.
pub fn web(name: &str) -> ServiceRow {
    ServiceRow::clone(&svc(name).port(80).row())
}

impl Site {
    /// A site with these pools, announced from everywhere.
    pub fn with(pools: &[Arc<PoolRow>]) -> Self {
        let site = Self {
            provider: Metal::default(),
            world: World::default(),
        };
        assert_eq!(site.set(pools, &[l2(json!({}))]), []);
        site
    }

    pub fn set(&self, pools: &[Arc<PoolRow>], resources: &[Arc<ResourceRow>]) -> Vec<Reason> {
        assert_eq!(self.provider.set_resources(resources), []);
        self.provider.set_pools(pools)
    }

    /// Gives a Service an endpoint.
    pub fn serve(&mut self, name: &str) {
        let row = slice(name).port("", 8080).ready("10.8.0.1").row();
        self.world.apply(Fact::Slice(row));
    }

    pub fn spec(&self, row: &ServiceRow) -> Intent {
        resolve(row, &self.world, self.provider.profile()).expect("a valid Service")
    }

    async fn steps(&self, want: &Intent) -> Result<Vec<String>, Vec<Reason>> {
        let have = self.provider.observe(want).await.unwrap();
        let plan = self.provider.plan(want, &have)?;
        Ok(plan.steps.iter().map(|it| it.step.to_string()).collect())
    }

    /// Reconciles, with a record of each claim, and returns the steps.
    pub async fn settle(&self, want: &Intent) -> Result<Vec<String>, Vec<Reason>> {
        let have = self.provider.observe(want).await.unwrap();
        let plan = self.provider.plan(want, &have)?;
        for planned in &plan.steps {
            let applied = self.provider.apply(&planned.step).await;
            if let Applied::Addressed(_) = applied.expect("no other Service claims") {
                self.provider.on_recorded(&want.uid);
            }
        }
        if want.load_balancer.is_none() {
            self.provider.on_forgotten(&want.uid);
        }
        if let Ok(again) = self.steps(want).await {
            assert_eq!(again, [""; 0], "planned twice");
        }
        Ok(plan.steps.iter().map(|it| it.step.to_string()).collect())
    }

    pub async fn status(&self, want: &Intent) -> ProviderStatus {
        let have = self.provider.observe(want).await.unwrap();
        self.provider.status(want, &have)
    }

    /// The addresses of a Service after a reconcile.
    pub async fn addresses(&self, row: &ServiceRow) -> Vec<String> {
        let want = self.spec(row);
        let _ = self.settle(&want).await;
        let ingress = self.status(&want).await.ingress;
        let addresses = ingress.iter().filter_map(|it| it.ip);
        addresses.map(|it| it.to_string()).collect()
    }

    /// Why no traffic arrives.
    pub async fn waiting(&self, row: &ServiceRow) -> Vec<Code> {
        let want = self.spec(row);
        let waiting = self.status(&want).await.waiting;
        waiting.iter().map(|reason| reason.code).collect()
    }
}
