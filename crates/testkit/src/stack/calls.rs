//! Which API calls were made: read from the access logs of the real services.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::http::{Method, Request, USER_AGENT};
use super::session::Session;
use super::{Service, StackError};

/// A place in the access logs of all services.
#[derive(Clone, Debug)]
pub struct Mark {
    begins: BTreeMap<Service, u64>,
}

/// One answered API call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The receiver.
    pub service: Service,
    /// `GET`, `POST`, ...
    pub method: String,
    /// Without the query.
    pub path: String,
    /// What stands behind the question mark; empty if nothing does.
    pub query: String,
    /// HTTP status of the answer.
    pub status: u16,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// Id of the project that the token was for. None for calls to Keystone, and for those that
    /// were refused for their token.
    pub project: Option<String>,
}

/// A log line comes right after its answer. Seconds only where a machine is very busy.
const TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

static FENCES: AtomicU32 = AtomicU32::new(0);

// === impl Call ===

impl Call {
    /// Whether it was to change something, whatever came of it.
    pub fn is_write(&self) -> bool {
        !matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS")
    }

    /// Method and path, with `{id}` for every id: `GET /v2.0/ports/{id}`.
    pub fn route(&self) -> String {
        let parts = self.path.split('/');
        let parts: Vec<_> = parts
            .map(|part| if is_id(part) { "{id}" } else { part })
            .collect();
        format!("{} {}", self.method, parts.join("/"))
    }

    /// How often each route was called.
    pub fn count<'a>(calls: impl IntoIterator<Item = &'a Self>) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in calls {
            *counts.entry(call.route()).or_default() += 1;
        }
        counts
    }

    /// A line of Apache's combined format, with the project behind it.
    fn parse(service: Service, line: &str) -> Option<Self> {
        // Quotes inside of fields are escaped, and occur in no field that matters here.
        let mut fields = line.split('"');
        let mut request = fields.nth(1)?.split(' ');
        let status = fields.next()?.split_whitespace().next()?.parse().ok()?;
        let user_agent = fields.nth(2)?.to_owned();
        let project = fields.next().map(str::trim).unwrap_or_default();
        let method = request.next()?.to_owned();
        let target = request.next()?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Some(Self {
            service,
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            status,
            user_agent,
            project: (!matches!(project, "" | "-")).then(|| project.to_owned()),
        })
    }
}

/// A UUID, with or without hyphens.
fn is_id(part: &str) -> bool {
    matches!(part.len(), 32 | 36) && part.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

pub(super) async fn mark(place: &Path, session: &Session) -> Result<Mark, StackError> {
    fence(place, session).await?;
    let mut begins = BTreeMap::new();
    for service in Service::ALL {
        let path = log(place, service);
        let length = std::fs::metadata(&path)
            .map_err(|source| unreadable(&path, source))?
            .len();
        begins.insert(service, length);
    }
    Ok(Mark { begins })
}

/// Every call since, testkit's own fences apart. By service, and in the order of the answers.
pub(super) async fn since(
    place: &Path,
    session: &Session,
    mark: &Mark,
) -> Result<Vec<Call>, StackError> {
    fence(place, session).await?;
    let mut calls = Vec::new();
    for (service, begin) in &mark.begins {
        let text = read_from(&log(place, *service), *begin)?;
        let lines = text.lines().filter_map(|line| Call::parse(*service, line));
        calls.extend(lines.filter(|call| !call.user_agent.contains(FENCE)));
    }
    Ok(calls)
}

const FENCE: &str = "-fence/";

/// Waits until calls that were answered are in the logs, too: a line is written after the answer
/// was sent. Twice, since the lines of two calls may overtake each other.
async fn fence(place: &Path, session: &Session) -> Result<(), StackError> {
    for service in [Service::ALL, Service::ALL].concat() {
        let number = FENCES.fetch_add(1, Ordering::Relaxed);
        let user_agent = format!("{USER_AGENT}{FENCE}{}-{number}", process::id());
        let path = log(place, service);
        let begin = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let url = format!("{}/", session.endpoint(service).await?);
        session
            .client()
            .send(Request {
                method: Method::GET,
                url: &url,
                user_agent: &user_agent,
                token: None,
                body: None,
            })
            .await?;
        let asked = Instant::now();
        let needle = format!("\"{user_agent}\"");
        while !read_from(&path, begin)?.contains(&needle) {
            if asked.elapsed() > TIMEOUT {
                let why = io::Error::other("a call that was answered is not in it");
                return Err(unreadable(&path, why));
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

fn log(place: &Path, service: Service) -> PathBuf {
    place.join(format!("log/{}-access.log", service.name()))
}

fn read_from(path: &Path, begin: u64) -> Result<String, StackError> {
    let read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(begin))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().map_err(|source| unreadable(path, source))
}

fn unreadable(path: &Path, source: io::Error) -> StackError {
    StackError::Io {
        what: format!("the access log {} can't be read", path.display()),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5e4e0b3a-8d0a-4d40-9d5b-6d0f9b9c0a11";

    #[test]
    fn a_line_of_the_access_log_becomes_a_call() {
        let line = format!(
            "127.0.0.1 - - [22/Nov/2026:00:30:01 +0000] \"PUT /v2.0/ports/{ID}?x=1 HTTP/1.1\" \
             409 21 \"-\" \"landfall/1 (a b)\" 0123456789abcdef0123456789abcdef"
        );
        let call = Call::parse(Service::Network, &line).unwrap();
        assert_eq!(call.route(), "PUT /v2.0/ports/{id}");
        assert_eq!((call.query.as_str(), call.status), ("x=1", 409));
        assert_eq!(call.user_agent, "landfall/1 (a b)");
        assert_eq!(
            call.project.as_deref(),
            Some("0123456789abcdef0123456789abcdef")
        );
        assert!(call.is_write());
    }

    #[test]
    fn a_line_without_project_is_a_call_without_caller_and_other_lines_are_none() {
        let line = r#"127.0.0.1 - - [t] "GET / HTTP/1.1" 200 2 "-" "curl/8""#;
        for line in [line.to_owned(), format!("{line} -")] {
            let call = Call::parse(Service::Identity, &line).unwrap();
            assert_eq!((call.project, call.path.as_str()), (None, "/"));
        }
        assert_eq!(Call::parse(Service::Identity, "starting"), None);
    }
}
