//! `landfall orphans`: what controllers made in the cloud and no Service owns any more.
//!
//! ```text
//!  Services ──> cloud ──> list ──> y/N ──> Services ──> cloud ──> delete what both looks show
//! ```
//!
//! The second look is what keeps a load balancer that is being made meanwhile: in the first its
//! Service may not have been read yet, and in the second it has. Right before each deletion the
//! object is checked once more.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write};
use std::sync::Arc;

use anyhow::Context as _;
use landfall_files::Loaded;
use landfall_kube::CustomResources;
use landfall_model::reason::Severity;
use landfall_model::rows::{Fact, ServiceRow};
use serde::{Serialize, Serializer};

use crate::backend::{Orphan, Owners, camel_cased};
use crate::cli::{OrphansArgs, TextOutput};
use crate::instances::Instances;
use crate::manifests::{self, Texts};
use crate::table;
use crate::text::counted;

/// The kind that `--keep-floating-ips` is about.
const FLOATING_IP: &str = "floating IP";

/// What was read, and the orphans among it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Look {
    /// Services that may own something.
    services: usize,
    /// Objects that were read, orphans or not, by kind.
    #[serde(serialize_with = "by_kind")]
    read: Vec<(&'static str, usize)>,
    orphans: Vec<InstanceOrphan>,
    /// Objects that only --unmarked lists.
    unmarked: usize,
    #[serde(skip)]
    owners: Owners,
}

/// An orphan in the cloud of an instance.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct InstanceOrphan {
    instance: String,
    #[serde(flatten)]
    orphan: Orphan,
    /// What came of deleting it; absent: it was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    Deleted,
    /// It is gone, or a Service owns it now.
    NoOrphanAnyMore,
    Failed(String),
}

/// Where Services are read.
#[derive(Debug)]
enum Source {
    Cluster(crate::cli::ClusterArgs),
    Manifests(Texts),
}

/// Runs the command; says whether there are none (any more).
pub async fn run(args: OrphansArgs) -> anyhow::Result<bool> {
    let by_terminal = std::io::stdin().is_terminal();
    anyhow::ensure!(
        !args.delete || args.yes || by_terminal,
        "--delete asks for confirmation, and there is no terminal; --yes confirms for scripts"
    );
    let mut instances = Instances::read(&args.instances).await?;
    instances.ensure_active()?;
    let source = if args.filename.is_empty() {
        let connection = args.cluster.connect().await?;
        instances
            .learn_cluster(&connection, &args.cluster.origin())
            .await?;
        Source::Cluster(args.cluster.clone())
    } else {
        Source::Manifests(manifests::concatenated(&args.filename, args.recursive).await?)
    };
    let mut first = look(&instances, &source, &args).await?;
    let deletes = args.delete && !first.orphans.is_empty();
    let asks = deletes && !args.yes;
    let (mut out, mut beside) = (std::io::stdout(), std::io::stderr());
    show(&first, args.output, asks, &mut out, &mut beside)?;
    if asks && !agreed(first.orphans.len())? {
        writeln!(beside, "nothing was deleted")?;
    } else if deletes {
        let second = look(&instances, &source, &args).await?;
        delete(&instances, &mut first, &second, args.output).await?;
    }
    if args.output == TextOutput::Json {
        writeln!(
            std::io::stdout(),
            "{}",
            serde_json::to_string_pretty(&first)?
        )?;
    }
    let is_left = |stray: &InstanceOrphan| !matches!(&stray.outcome, Some(it) if !it.is_failure());
    Ok(!first.orphans.iter().any(is_left))
}

// === impl Outcome ===

impl Outcome {
    fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}

// === impl Source ===

impl Source {
    /// The Services that may own something. One that can't be read would be missed as an owner, so
    /// that this is an error.
    async fn owners(&self) -> anyhow::Result<Owners> {
        let loaded = match self {
            Self::Cluster(cluster) => cluster.load(&CustomResources::default()).await?,
            Self::Manifests(texts) => texts.loaded(),
        };
        complete(&loaded)?;
        let have_uids = matches!(self, Self::Cluster(_));
        let services: Vec<Arc<ServiceRow>> = loaded
            .facts
            .into_iter()
            .filter_map(|fact| match fact {
                Fact::Service(row) if owns(&row) => Some(row),
                _ => None,
            })
            .collect();
        anyhow::ensure!(
            !services.is_empty() || have_uids,
            "no Service of type LoadBalancer is in these manifests, so every object would be an \
            orphan"
        );
        Ok(Owners {
            services,
            have_uids,
        })
    }
}

fn complete(loaded: &Loaded) -> anyhow::Result<()> {
    let mut unread = loaded
        .reasons
        .iter()
        .filter(|reason| reason.severity == Severity::Error)
        .map(ToString::to_string)
        .peekable();
    anyhow::ensure!(
        unread.peek().is_none(),
        "objects that can't be read may be owners:\n{}",
        unread.collect::<Vec<_>>().join("\n")
    );
    Ok(())
}

fn owns(row: &ServiceRow) -> bool {
    row.wants_load_balancer || row.finalized
}

/// Reads the clouds of all instances.
async fn look(instances: &Instances, source: &Source, args: &OrphansArgs) -> anyhow::Result<Look> {
    let owners = source.owners().await?;
    let mut look = Look {
        services: owners.services.len(),
        ..Look::default()
    };
    let mut seen = BTreeSet::new();
    for setup in instances.active() {
        let instance = &setup.instance;
        setup
            .check()
            .await
            .with_context(|| format!("instance {instance}"))?;
        let found = setup.find_orphans(&owners).await?;
        for (kind, count) in found.read {
            match look.read.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, sum)) => *sum += count,
                None => look.read.push((kind, count)),
            }
        }
        let mut found = found.orphans;
        found.retain(|it| !args.keep_floating_ips || it.kind != FLOATING_IP);
        // Two instances may share a project.
        found.retain(|it| seen.insert(it.id.clone()));
        let all = found.len();
        found.retain(|it| args.unmarked || !it.unproven);
        look.unmarked += all - found.len();
        look.orphans
            .extend(found.into_iter().map(|orphan| InstanceOrphan {
                instance: instance.clone(),
                orphan,
                outcome: None,
            }));
    }
    look.owners = owners;
    Ok(look)
}

/// Writes the counts as an object: `{"loadBalancers": 3}`.
fn by_kind<S: Serializer>(read: &[(&'static str, usize)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(
        read.iter()
            .map(|(kind, count)| (camel_cased(&plural(kind)), count)),
    )
}

fn plural(kind: &str) -> String {
    format!("{kind}s")
}

/// Prints the list for people. With an output for programs, the document comes at the end, and the
/// list for confirmation goes to standard error.
fn show(
    look: &Look,
    output: TextOutput,
    asks: bool,
    out: &mut dyn Write,
    beside: &mut dyn Write,
) -> std::io::Result<()> {
    match output {
        TextOutput::Text => write!(out, "{}", describe(look)),
        TextOutput::Json if asks => write!(beside, "{}", describe(look)),
        TextOutput::Json => Ok(()),
    }
}

/// Asks at the terminal.
fn agreed(count: usize) -> anyhow::Result<bool> {
    let mut prompt = std::io::stderr();
    write!(prompt, "Delete {}? [y/N] ", objects(count))?;
    prompt.flush()?;
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("reading the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Deletes what is still an orphan, in the order in which it can be: floating IPs, load balancers,
/// then groups.
async fn delete(
    instances: &Instances,
    first: &mut Look,
    second: &Look,
    output: TextOutput,
) -> anyhow::Result<()> {
    let still: BTreeSet<&String> = second.orphans.iter().map(|it| &it.orphan.id).collect();
    for stray in &mut first.orphans {
        let orphan = &stray.orphan;
        let setup = instances.active().find(|it| it.instance == stray.instance);
        let outcome = match setup {
            Some(setup) if still.contains(&orphan.id) => {
                match setup.delete_orphan(&second.owners, orphan).await {
                    Ok(true) => Outcome::Deleted,
                    Ok(false) => Outcome::NoOrphanAnyMore,
                    Err(error) => Outcome::Failed(error.to_string()),
                }
            }
            _ => Outcome::NoOrphanAnyMore,
        };
        if output == TextOutput::Text {
            let mut out = std::io::stdout();
            match &outcome {
                Outcome::Deleted => writeln!(out, "deleted {orphan}")?,
                Outcome::NoOrphanAnyMore => {
                    writeln!(out, "kept {orphan}: it is no orphan any more")?;
                }
                Outcome::Failed(error) => writeln!(out, "not deleted: {orphan}: {error}")?,
            }
        }
        stray.outcome = Some(outcome);
    }
    if output == TextOutput::Text {
        let failed =
            |stray: &&InstanceOrphan| stray.outcome.as_ref().is_some_and(Outcome::is_failure);
        let deleted = |stray: &&InstanceOrphan| matches!(stray.outcome, Some(Outcome::Deleted));
        let (deleted, failed) = (
            first.orphans.iter().filter(deleted).count(),
            first.orphans.iter().filter(failed).count(),
        );
        writeln!(
            std::io::stdout(),
            "{deleted} deleted, {failed} could not be"
        )?;
    }
    Ok(())
}

fn objects(count: usize) -> String {
    if count == 1 {
        "this object".to_owned()
    } else {
        format!("these {count} objects")
    }
}

/// The list for people.
fn describe(look: &Look) -> String {
    let mut text = String::new();
    if !look.orphans.is_empty() {
        let rows = look.orphans.iter().map(|stray| {
            let Orphan {
                kind,
                id,
                name,
                whose,
                ..
            } = &stray.orphan;
            vec![
                (*kind).to_owned(),
                name.clone(),
                id.clone(),
                whose.clone(),
                stray.instance.clone(),
            ]
        });
        let header = ["KIND", "NAME", "ID", "WHOSE", "INSTANCE"];
        let _ = writeln!(text, "{}\n", table::render(&header, rows.collect()));
    }
    let read: Vec<String> = look
        .read
        .iter()
        .map(|(kind, count)| counted(*count, kind))
        .collect();
    let read = match read.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "no objects".to_owned(),
    };
    let _ = writeln!(
        text,
        "{} among {read}; {}",
        counted(look.orphans.len(), "orphan"),
        counted(look.services, "Service")
    );
    if look.unmarked > 0 {
        let _ = writeln!(
            text,
            "not listed: {}, of which only the name says that it is this cluster's, and which may \
            serve another one of this name; --unmarked lists what is not listed",
            counted(look.unmarked, "object")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use landfall_testkit::svc;

    use super::*;

    #[test]
    fn a_service_owns_while_it_wants_a_load_balancer_or_is_cleared_away() {
        let row = |wants, finalized| {
            let service = svc("web").port(80).with(|row| {
                row.wants_load_balancer = wants;
                row.finalized = finalized;
            });
            service.row()
        };
        assert!(owns(&row(true, false)));
        assert!(owns(&row(false, true)));
        assert!(!owns(&row(false, false)));
    }

    #[test]
    fn no_question_is_about_objects_that_were_not_shown() {
        let look = Look {
            orphans: vec![InstanceOrphan {
                instance: "openstack".to_owned(),
                orphan: Orphan {
                    kind: "load balancer",
                    id: "1".to_owned(),
                    name: "kube_service_c1_default_gone".to_owned(),
                    whose: "of default/gone".to_owned(),
                    unproven: false,
                },
                outcome: None,
            }],
            ..Look::default()
        };
        let shown = |output, asks| {
            let (mut out, mut beside) = (Vec::new(), Vec::new());
            show(&look, output, asks, &mut out, &mut beside).unwrap();
            let lists = |text: Vec<u8>| String::from_utf8(text).unwrap().contains("default_gone");
            (lists(out), lists(beside))
        };
        assert_eq!(shown(TextOutput::Text, true), (true, false));
        assert_eq!(shown(TextOutput::Text, false), (true, false));
        assert_eq!(shown(TextOutput::Json, true), (false, true));
        assert_eq!(shown(TextOutput::Json, false), (false, false));
    }
}
