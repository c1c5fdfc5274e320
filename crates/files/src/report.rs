//! The store as the engine's place for reports.

use landfall_engine::report::{Event, Report, ReportError};
use landfall_model::rows::ServiceRow;
use landfall_model::status::ServiceStatus;

use crate::store::{ManifestStore, StoreError};

/// Writes at the same time. Ten thousand Services that begin together take ten batches for each of
/// their writes, and the jobs of so many passes a few megabytes.
const AT_ONCE: usize = 1024;

impl Report for ManifestStore {
    async fn add_finalizer(
        &self,
        service: &ServiceRow,
        status: Option<&ServiceStatus>,
    ) -> Result<(), ReportError> {
        let result = Self::add_finalizer(self, &service.key, &service.uid, status).await;
        result.map_err(|error| report_error("finalizer", &error))
    }

    async fn remove_finalizer(&self, service: &ServiceRow) -> Result<(), ReportError> {
        let result = Self::remove_finalizer(self, &service.key, &service.uid).await;
        result.map_err(|error| report_error("finalizer", &error))?;
        // The status goes last: by it the Service is found again, should only the first be done.
        let empty = ServiceStatus::default();
        match Self::write_status(self, &service.key, &service.uid, &empty).await {
            Err(StoreError::Outdated { .. }) => Ok(()),
            result => result.map_err(|error| report_error("status", &error)),
        }
    }

    async fn write_status(
        &self,
        service: &ServiceRow,
        status: &ServiceStatus,
    ) -> Result<(), ReportError> {
        let result = Self::write_status(self, &service.key, &service.uid, status).await;
        result.map_err(|error| report_error("status", &error))
    }

    /// Writers that come while the disk is busy share the next sync: the more, the fewer syncs.
    fn at_once(&self) -> usize {
        AT_ONCE
    }

    /// Events have no receiver but the log.
    async fn event(&self, service: &ServiceRow, event: &Event) {
        let Event {
            reason,
            warning,
            message,
        } = event;
        if *warning {
            tracing::warn!(service = %service.key, reason, "{message}");
        } else {
            tracing::info!(service = %service.key, reason, "{message}");
        }
    }
}

fn report_error(what: &'static str, error: &StoreError) -> ReportError {
    match error {
        StoreError::Outdated { .. } => ReportError::Conflict { what },
        StoreError::State(_) | StoreError::Stopping => ReportError::Unavailable {
            what,
            why: error.to_string(),
            unanswered: false,
        },
    }
}
