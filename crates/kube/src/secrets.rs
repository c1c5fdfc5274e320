//! Secrets by name: watched while a Service names them, and no others.
//!
//! Service facts pass through here. One that names a Secret of which nothing is known yet waits
//! until it is, so that a certificate is not reported as missing while it is still on its way.

mod refs;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use landfall_model::ServiceKey;
use landfall_model::rows::Fact;
use landfall_model::view::SecretsView;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::SourceConfig;
use crate::connect::Connection;
use crate::health::HealthReport;
use crate::watch::{Kind, Listings, Renewal, Watcher, answered};

use refs::{Order, SecretRefs};

/// Runs what [`SecretRefs`] order.
pub(crate) struct SecretsTask {
    connection: Connection,
    config: Arc<SourceConfig>,
    facts: mpsc::Sender<Fact>,
    health: HealthReport,
    answered: Option<oneshot::Sender<()>>,
    specs: SecretRefs,
    counts: watch::Sender<SecretsView>,
    watches: HashMap<ServiceKey, Watch>,
    watchers: JoinSet<()>,
    /// Secrets of which something is known now.
    answers: JoinSet<Option<ServiceKey>>,
}

/// A Secret that is watched.
struct Watch {
    cancel: CancellationToken,
    /// Resolves once its last fact was sent.
    ended: oneshot::Receiver<()>,
}

// === impl SecretsTask ===

impl SecretsTask {
    pub(crate) fn new(
        connection: Connection,
        config: Arc<SourceConfig>,
        facts: mpsc::Sender<Fact>,
        health: HealthReport,
        answered: oneshot::Sender<()>,
    ) -> Self {
        let specs = SecretRefs {
            limits: config.limits,
            ..SecretRefs::default()
        };
        Self {
            connection,
            config,
            facts,
            health,
            answered: Some(answered),
            counts: watch::Sender::new(specs.counts()),
            specs,
            watches: HashMap::new(),
            watchers: JoinSet::new(),
            answers: JoinSet::new(),
        }
    }

    /// How many Secrets are watched.
    pub(crate) fn counts(&self) -> watch::Receiver<SecretsView> {
        self.counts.subscribe()
    }

    /// Passes facts about Services on until they end. `listed`: every Service has been sent.
    pub(crate) async fn run(
        mut self,
        mut services: mpsc::Receiver<Fact>,
        mut listed: Listings,
        cancel: CancellationToken,
    ) {
        let mut all_listed = false;
        loop {
            let due = self.specs.next_due();
            let orders = tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                // Before the sign that all are listed, which comes after them.
                fact = services.recv() => match fact {
                    Some(fact) => self.specs.take(fact,
                        Instant::now() + self.config.secret_timeout),
                    None => break,
                },
                true = answered(&mut listed, 0), if !all_listed => {
                    all_listed = true;
                    // What was sent before the sign may have arrived since the first branch was
                    // polled.
                    let mut orders = Vec::new();
                    while let Ok(fact) = services.try_recv() {
                        let due = Instant::now() + self.config.secret_timeout;
                        orders.extend(self.specs.take(fact, due));
                    }
                    orders
                }
                Some(answer) = self.answers.join_next(),
                    if !self.answers.is_empty() => match answer {
                    Ok(Some(secret)) => self.specs.know(&secret),
                    _ => Vec::new(),
                },
                Some(_) = self.watchers.join_next(), if !self.watchers.is_empty() => Vec::new(),
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into()),
                    if due.is_some() => {
                    self.specs.expire(Instant::now())
                }
            };
            let counts = self.specs.counts();
            self.counts
                .send_if_modified(|reported| std::mem::replace(reported, counts) != counts);
            if self.carry_out(orders, &listed).await.is_err() {
                break;
            }
            if all_listed
                && self.specs.is_settled()
                && let Some(answered) = self.answered.take()
            {
                let _no_receiver = answered.send(());
            }
        }
        self.watches
            .values()
            .for_each(|watch| watch.cancel.cancel());
        self.watchers.shutdown().await;
    }

    async fn carry_out(&mut self, orders: Vec<Order>, services: &Listings) -> Result<(), ()> {
        for order in orders {
            match order {
                Order::Send(fact) => self.facts.send(fact).await.map_err(drop)?,
                Order::Watch(secret) => self.watch(secret, services.clone()),
                Order::Unwatch(secret) => {
                    if let Some(watch) = self.watches.remove(&secret) {
                        watch.cancel.cancel();
                        // Should it be named again at once, the fact that it is gone must not be
                        // sent last.
                        let _ended = watch.ended.await;
                    }
                }
            }
        }
        Ok(())
    }

    fn watch(&mut self, secret: ServiceKey, services: Listings) {
        let (renewal, mut known) = Renewal::never();
        let watcher = Watcher::new(
            self.connection.clone(),
            self.config.clone(),
            Kind::Secret(secret.clone()),
            self.facts.clone(),
            self.health.clone(),
            renewal,
            Some(services),
        );
        let cancel = CancellationToken::new();
        let (end, ended) = oneshot::channel();
        self.watches.insert(
            secret.clone(),
            Watch {
                cancel: cancel.clone(),
                ended,
            },
        );
        self.watchers.spawn(async move {
            watcher.run_then_forget(cancel).await;
            let _no_receiver = end.send(());
        });
        self.answers
            .spawn(async move { answered(&mut known, 0).await.then_some(secret) });
    }
}

#[cfg(test)]
mod tests;
