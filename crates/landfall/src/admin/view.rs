//! One picture of a running instance, drawn from the engine's book and the provider.

use landfall_engine::EngineHandle;
use landfall_engine::store::{Record, Snapshot};
use landfall_model::ServiceKey;
use landfall_model::provider::Provider;
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::ServiceRow;
use landfall_model::view::{InstanceView, ServiceView};
use landfall_web::Readiness;

use crate::backend::Backend;

/// The largest number of unhandled Services that a probe lists.
const NAMED: usize = 10;

/// Everything the instance knows, with traffic counted up to now.
pub fn instance(handle: &EngineHandle<Backend>, started: &str) -> InstanceView {
    handle.store.read(|pages| {
        let waiting = waiting(pages, usize::MAX);
        InstanceView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: started.to_owned(),
            ready: waiting.is_empty(),
            waiting,
            problems: pages
                .problems
                .iter()
                .cloned()
                .chain(problems(handle))
                .collect(),
            pools: handle
                .providers
                .iter()
                .flat_map(|provider| provider.pools())
                .collect(),
            services: pages
                .records
                .values()
                .filter_map(|record| drawn(handle, pages, record))
                .collect(),
            peers: Vec::new(),
            routes: Vec::new(),
        }
    })
}

/// Returns what is wrong with providers, each once: those on this machine share one data plane.
fn problems(handle: &EngineHandle<Backend>) -> Vec<Reason> {
    let mut problems = Vec::new();
    for problem in handle.providers.iter().filter_map(|it| it.problem()) {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    problems
}

/// One Service of them.
pub fn one(handle: &EngineHandle<Backend>, key: &ServiceKey) -> Option<ServiceView> {
    let find = |pages: &Snapshot| drawn(handle, pages, pages.records.get(key)?);
    handle.store.read(find)
}

/// Whether each Service was handled once, and some of those that were not.
pub fn readiness(handle: &EngineHandle<Backend>) -> Readiness {
    let waiting = handle.store.read(|pages| waiting(pages, NAMED));
    Readiness {
        ready: waiting.is_empty(),
        waiting,
    }
}

/// What is waited for; of Services at most so many by name.
fn waiting(pages: &Snapshot, most: usize) -> Vec<String> {
    let reading = (!pages.synced).then(|| "the manifests are still being read".to_owned());
    let mut waiting: Vec<String> = reading.into_iter().collect();
    let mut unhandled = pages.records.iter().filter(|(_, record)| !record.handled);
    let named = unhandled.by_ref().take(most);
    waiting.extend(named.map(|(key, _)| format!("{key} has not been handled yet")));
    let others = unhandled.count();
    if others > 0 {
        waiting.push(format!("{others} others have not been handled yet"));
    }
    waiting
}

fn drawn(handle: &EngineHandle<Backend>, pages: &Snapshot, record: &Record) -> Option<ServiceView> {
    let provider = record.instance.and_then(|it| it.of(&handle.providers));
    let mut view = service(provider.map(AsRef::as_ref), record)?;
    view.reasons
        .extend(duplicates(&pages.problems, record.key()));
    Some(view)
}

/// Returns the file and line once more for a Service which the files report as their own problem.
/// What is served is right, so that it is no error of the Service.
fn duplicates(problems: &[Reason], service: &ServiceKey) -> impl Iterator<Item = Reason> {
    let begins = format!("Service {service} is already defined in ");
    let about = problems.iter().filter(move |problem| {
        problem.code == Code::DuplicateObject && problem.message.starts_with(&begins)
    });
    about.map(|problem| {
        let place = problem.origin.as_ref().map(ToString::to_string);
        Reason::warning(
            problem.code,
            format!(
                "this Service is also defined in {}, which is ignored",
                place.unwrap_or_else(|| "another place".to_owned())
            ),
        )
        .remedy(problem.remedy.clone())
        .origin(problem.origin.clone())
    })
}

fn service<P: Provider>(provider: Option<&P>, record: &Record) -> Option<ServiceView> {
    let row = record.row()?;
    Some(ServiceView {
        key: row.key.clone(),
        uid: row.uid.clone(),
        class: row.class.as_ref().map(ToString::to_string),
        origin: row.source.as_ref().map(|source| source.document.clone()),
        status: record.shown_status(),
        reasons: placed(&record.reasons, &row),
        address: record.address(),
        announcements: Vec::new(),
        listeners: provider
            .map(|provider| provider.live(&row.uid))
            .unwrap_or_default(),
        left_out: record.left_out.clone(),
        pending: record.pending.clone(),
        removing: record.removing,
    })
}

/// Reasons that name a field and no place get the place of the field in its file.
fn placed(reasons: &[Reason], row: &ServiceRow) -> Vec<Reason> {
    let place = |reason: &Reason| {
        let origin = reason.origin.clone().or_else(|| {
            let field = reason.field.as_ref()?;
            row.origin_of(field)
        });
        reason.clone().origin(origin)
    };
    reasons.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use landfall_config::cloud_conf;
    use landfall_engine::{World, resolve};
    use landfall_model::rows::Fact;
    use landfall_openstack::client::auth::{Auth, DomainRef, ProjectRef, Scope, UserRef};
    use landfall_openstack::client::{Cloud, CloudConfig, NoAnswer, Transport};
    use landfall_openstack::{OpenStack, Settings};
    use landfall_testkit::openstack::{Logins, Settle, Sim};
    use landfall_testkit::{node, svc};

    use super::*;
    use crate::commands::{explain, get};

    fn simulated(sim: &Sim) -> OpenStack {
        let logins = Logins::default();
        let domain = DomainRef::Name(logins.domain);
        let auth = Auth::Password {
            user: UserRef::Name {
                name: logins.user,
                domain: domain.clone(),
            },
            password: logins.password.into(),
            scope: Scope::Project(ProjectRef::Name {
                name: logins.project,
                domain,
            }),
        };
        let answering = sim.clone();
        let transport = Transport::InProcess(Arc::new(move |request| {
            let sim = answering.clone();
            Box::pin(async move {
                let answer = sim.answer(request).await;
                answer.map_err(|_| NoAnswer::Lost("simulated".to_owned()))
            })
        }));
        let cloud = Cloud::over(CloudConfig::new(&sim.auth_url(), auth), transport).unwrap();
        let conf = format!(
            "[Global]\nauth-url={}\nusername=u\npassword=p\ntenant-id=t\n\
             domain-id=d\n[LoadBalancer]\nfloating-network-id={}\nsubnet-id={}\n",
            sim.auth_url(),
            sim.external_network(),
            sim.subnet()
        );
        let conf = cloud_conf::parse("cloud.conf", &conf).unwrap();
        OpenStack::new(cloud, Settings::new(&conf, "c1"))
    }

    fn unhandled(name: &str) -> (ServiceKey, Record) {
        let row = svc(name).port(80).row();
        (row.key.clone(), Record::new((&*row).into()))
    }

    #[test]
    fn of_ten_thousand_services_that_wait_a_probe_names_a_few() {
        let mut pages = Snapshot::default();
        assert_eq!(
            waiting(&pages, NAMED),
            ["the manifests are still being read"]
        );
        pages.synced = true;
        assert_eq!(waiting(&pages, NAMED), [] as [&str; 0]);
        let names = (0..10_000).map(|number| format!("web-{number:04}"));
        pages.records = names.map(|name| unhandled(&name)).collect();
        let reported = waiting(&pages, NAMED);
        assert_eq!(reported[0], "default/web-0000 has not been handled yet");
        assert_eq!(reported[NAMED..], ["9990 others have not been handled yet"]);
        for record in pages.records.values_mut().skip(1) {
            record.handled = true;
        }
        assert_eq!(waiting(&pages, NAMED), reported[..1]);
    }

    #[tokio::test]
    async fn a_service_on_openstack_is_listed_with_its_ports_and_members() {
        let sim = Sim::new();
        sim.configure(|settings| settings.settle = Settle::all(Duration::ZERO));
        let provider = simulated(&sim);
        let row = svc("web").port(80).node_port(30080).row();
        let mut world = World::default();
        world.apply(Fact::Node(node("a", "10.0.0.4").row()));
        let want = resolve(&row, &world, provider.profile()).unwrap();
        // A reconcile may end with every write.
        for _ in 0..10 {
            let have = provider.observe(&want).await.unwrap();
            let plan = provider.plan(&want, &have).unwrap();
            let Some(planned) = plan.steps.first() else {
                break;
            };
            provider.apply(&planned.step).await.unwrap();
        }
        let record = Record::new((&*row).into());
        let view = service(Some(&provider), &record).unwrap();
        let reported = explain::explain(&view);
        assert!(reported.contains("Listener 80/TCP"), "{reported}");
        assert!(reported.contains("10.0.0.4:30080"), "{reported}");
        let listed = get::list(&[view], false);
        assert!(
            listed.contains("80/TCP") && listed.contains(" -  "),
            "{listed}"
        );
    }
}
