//! Traffic that is carried while there is no control plane that works: until one does, or another
//! replica serves.

use std::time::Duration;

use landfall_engine::leadership::Role;
use landfall_kube::Connection;
use tokio::sync::watch;

use super::{On, loop_ended};
use crate::assembly::{Instance, StartState};
use crate::instances::Instances;
use crate::last_known::{CarriedInstance, LastKnownStore, until_done};
use crate::signals::Stop;

/// What ends it before its time.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) stop: Stop,
    pub(super) grace: Duration,
    /// `None`: there are no other replicas.
    pub(super) role: Option<watch::Receiver<Role>>,
    pub(super) memory: Option<LastKnownStore>,
}

// === impl Ends ===

impl Ends {
    /// Carries what was served last until the API server has answered what is to be known. From
    /// then on traffic goes on by itself, until another control plane knows everything. `None`: a
    /// stop was asked for.
    pub(super) async fn carry<F: Future<Output = anyhow::Result<Instances>>>(
        &self,
        carried: CarriedInstance,
        connection: &Connection,
        prepare: impl Fn() -> F,
    ) -> anyhow::Result<Option<(Instances, StartState)>> {
        let prepared = async {
            carried.until_answered(connection).await;
            until_done(&prepare).await
        };
        tokio::select! {
            biased;
            () = self.stop.asked() => {
                carried.stop(self.grace).await;
                Ok(None)
            }
            () = carried.broken() => {
                carried.stop(self.grace).await;
                Err(loop_ended())
            }
            instances = prepared => Ok(Some((instances, carried.let_go().await))),
            () = self.replaced() => {
                carried.stop(self.grace).await;
                self.forget().await;
                self.begin(prepare).await
            }
        }
    }

    /// Learns what is to be known where no traffic is carried. `None`: a stop was asked for.
    pub(super) async fn begin<F: Future<Output = anyhow::Result<Instances>>>(
        &self,
        prepare: impl Fn() -> F,
    ) -> anyhow::Result<Option<(Instances, StartState)>> {
        let prepared = self.stop.unless_asked(prepare()).await.transpose()?;
        Ok(prepared.map(|instances| (instances, StartState::default())))
    }

    /// Starts an instance. Where traffic is carried already it is tried until it works, unless
    /// another replica serves: traffic must not end for what is wrong with the rest. `None`: a stop
    /// was asked for.
    pub(super) async fn started(
        &self,
        on: &mut On,
        starting: impl AsyncFn(&On) -> anyhow::Result<Instance>,
    ) -> anyhow::Result<Option<Instance>> {
        if let Some(proxy) = on.start_state.proxy.clone() {
            tokio::select! {
                biased;
                () = self.stop.asked() => {
                    proxy.shutdown(self.grace).await;
                    return Ok(None);
                }
                instance = until_done(|| starting(&*on)) => return Ok(Some(instance)),
                () = self.replaced() => {}
                // A cloud may keep a start waiting for minutes, and probes are answered meanwhile.
                never = on.start_state.answer(Duration::ZERO) => match never {},
            }
            proxy.shutdown(self.grace).await;
            on.start_state.proxy = None;
            self.forget().await;
        }
        self.stop.unless_asked(starting(&*on)).await.transpose()
    }

    /// Returns once another replica is seen to serve.
    async fn replaced(&self) {
        if let Some(mut role) = self.role.clone()
            && role.wait_for(|role| *role == Role::Standby).await.is_ok()
        {
            tracing::info!("another replica serves; the last known state is closed");
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Leaves nothing to be carried at the next start: another replica serves.
    pub(super) async fn forget(&self) {
        if let Some(memory) = &self.memory
            && let Err(error) = memory.forget().await
        {
            tracing::warn!(%error, "another replica serves; the last known state stays on disk");
        }
    }
}
