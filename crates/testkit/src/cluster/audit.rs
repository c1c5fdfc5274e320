//! What the API server was asked: its own audit log.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use serde::Deserialize;

/// A place in the audit log, from which entries are read.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
    begin: u64,
}

/// One request that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The user of the request.
    pub user: String,
    /// With what: the `User-Agent` header.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// `services`, `services/status`, ...; empty for paths that are no resource.
    pub resource: String,
    /// Namespace of the object, if it has one.
    pub namespace: String,
    /// Name of the object, if one was named.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// When it arrived: RFC 3339 with microseconds, so that the texts sort as the times do.
    pub received: String,
    /// When it was answered.
    pub answered: String,
    /// The path and query.
    pub uri: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    #[serde(default, rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    request_received_timestamp: String,
    stage_timestamp: String,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

// === impl Audit ===

impl Audit {
    pub(super) fn from_now(path: PathBuf) -> Self {
        let begin = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Self { path, begin }
    }

    /// Every request that was answered since, in the order of the answers. Watches count when they
    /// end.
    pub fn entries(&self) -> io::Result<Vec<AuditEntry>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.begin))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter_map(Line::answered)
            .collect())
    }

    /// Returns what was answered since, and begins after it the next time.
    pub fn take(&mut self) -> io::Result<Vec<AuditEntry>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.begin))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // The last line may not be whole yet.
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        text.truncate(whole);
        self.begin += whole as u64;
        let lines = text.split(|byte| *byte == b'\n');
        Ok(lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .filter_map(Line::answered)
            .collect())
    }

    /// What one user wrote since, Leases and access reviews apart: the former are written at rest,
    /// the latter are questions.
    pub fn writes_of(&self, user: &str) -> io::Result<Vec<AuditEntry>> {
        let entries = self.entries()?.into_iter();
        Ok(entries.filter(|entry| entry.is_of(user)).collect())
    }
}

// === impl AuditEntry ===

impl AuditEntry {
    /// Whether it was to change something, whatever came of it.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch" | "head")
    }

    /// Whether it is a write of this user, Leases and access reviews apart.
    pub fn is_of(&self, user: &str) -> bool {
        let asked = ["leases", "selfsubjectaccessreviews"];
        self.user == user && self.is_write() && !asked.contains(&self.resource.as_str())
    }
}

impl Line {
    fn answered(self) -> Option<AuditEntry> {
        let object = self.object_ref.unwrap_or_default();
        let resource = if object.subresource.is_empty() {
            object.resource
        } else {
            format!("{}/{}", object.resource, object.subresource)
        };
        (self.stage == "ResponseComplete").then(|| AuditEntry {
            user: self.user.username,
            user_agent: self.user_agent,
            verb: self.verb,
            resource,
            namespace: object.namespace,
            name: object.name,
            code: self.response_status.map_or(0, |status| status.code),
            received: self.request_received_timestamp,
            answered: self.stage_timestamp,
            uri: self.request_uri,
        })
    }
}
