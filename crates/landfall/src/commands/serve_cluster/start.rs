//! An instance whose facts come from an API server.

use std::sync::Arc;

use landfall_engine::leadership::Role;
use landfall_engine::metrics::Metrics;
use landfall_kube::lease::WriteGuard;
use landfall_kube::{Connection, Health, KubeReports, SourceConfig, Sources};
use landfall_model::reason::{Code, Reason};
use landfall_model::rows::Fact;
use landfall_model::view::SecretsView;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::assembly::{Instance, Lead, Options, StartState, descriptors};
use crate::last_known::LastKnownStore;
use crate::lifetime::Lifetime;
use crate::webhook::Webhook;
use crate::{resource_status, unused_memory};

/// What an instance is started with, beside its connection.
#[derive(Debug, Default)]
pub(super) struct On {
    pub(super) start_state: StartState,
    pub(super) memory: Option<LastKnownStore>,
    pub(super) role: Option<watch::Receiver<Role>>,
}

/// Starts an instance whose facts come from an API server.
pub async fn on_cluster(
    options: Options,
    connection: Connection,
    identity: &str,
    guard: WriteGuard,
    role: Option<watch::Receiver<Role>>,
) -> anyhow::Result<Instance> {
    let on = On {
        role,
        ..On::default()
    };
    start(&options, &connection, identity, guard, &on).await
}

pub(super) async fn start(
    options: &Options,
    connection: &Connection,
    identity: &str,
    guard: WriteGuard,
    on: &On,
) -> anyhow::Result<Instance> {
    let role = on.role.clone();
    let lead = role.clone().map(|role| Lead {
        role,
        confirmed: true,
    });
    let lifetime = Lifetime::default();
    let Lifetime { tasks, cancel } = &lifetime;
    // What is started here ends with an attempt that fails.
    let failed = cancel.clone().drop_guard();
    let limits = options.instances.limits().within_files(descriptors());
    let reports = KubeReports::new(connection.clone(), guard, identity, tasks, cancel);
    let on_resources = reports.on_resources();
    let (mut reported, mut secrets) = (None, None);
    let started = Instance::start_on(
        on.start_state.again()?,
        options.clone(),
        lifetime.clone(),
        Arc::new(reports),
        lead,
        |facts, lifetime| {
            let Lifetime { tasks, cancel } = lifetime;
            let facts = options.chosen.before(facts, tasks);
            let config = SourceConfig {
                limits,
                resources: options.instances.resources(),
                ..SourceConfig::default()
            };
            let (reported_to, role) = (facts.clone(), role.clone());
            let sources = Sources::start(connection, config, reported_to, role, tasks, cancel);
            reported = Some(facts.clone());
            secrets = Some(sources.secrets());
            tasks.spawn(report_health(sources.health(), facts, cancel.clone()));
            tasks.spawn(unused_memory::give_back(cancel.clone()));
        },
    );
    let instance = started.await?;
    if let Some(webhook) = &options.webhook {
        let home = options.instances.resources().namespace;
        let webhook = Webhook::open(webhook, &home).await?;
        tasks.spawn(webhook.serve(instance.handle().clone(), cancel.clone()));
    }
    drop(failed.disarm());
    instance.close_what_is_gone();
    if let Some(secrets) = secrets {
        let counting = count_secrets(secrets, instance.handle().metrics.clone());
        let cancel = cancel.clone();
        tasks.spawn(async move { cancel.run_until_cancelled(counting).await });
    }
    let resources = options.instances.resources();
    let reporting = resource_status::follow(instance.handle().clone(), on_resources, resources);
    tasks.spawn(cancel.clone().run_until_cancelled_owned(reporting));
    if let (Some(memory), Some(facts)) = (on.memory.clone(), reported) {
        let handle = instance.handle().clone();
        tasks.spawn(memory.follow(handle, role, facts, cancel.clone()));
    }
    Ok(instance)
}

/// Shows in the metrics how many Secrets are watched.
async fn count_secrets(mut secrets: watch::Receiver<SecretsView>, metrics: Arc<Metrics>) {
    loop {
        metrics.secrets(*secrets.borrow_and_update());
        if secrets.changed().await.is_err() {
            return;
        }
    }
}

/// Shows as a problem what can't be followed at the moment.
async fn report_health(
    mut health: watch::Receiver<Health>,
    facts: mpsc::Sender<Fact>,
    cancel: CancellationToken,
) {
    loop {
        let failing: Vec<Reason> = health
            .borrow_and_update()
            .failing()
            .map(|(what, why)| {
                Reason::warning(
                    Code::ChangesNoticedLate,
                    format!("{what} can't be watched: {why}"),
                )
                .remedy("the last known state is served; changes are applied once it is back")
            })
            .collect();
        let reported = Fact::SourceProblems {
            part: "API server".into(),
            reasons: failing,
        };
        if facts.send(reported).await.is_err() {
            return;
        }
        if !matches!(
            cancel.run_until_cancelled(health.changed()).await,
            Some(Ok(()))
        ) {
            return;
        }
    }
}
