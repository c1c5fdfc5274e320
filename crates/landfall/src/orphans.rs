//! `landfall orphans`: what controllers made in the cloud and no Service owns any more.
//!
//! ```text
//!  Services ──> cloud ──> list ──> y/N ──> Services ──> cloud ──> delete what both looks show
//! ```
//!
//! The second look is what keeps a load balancer that is being made meanwhile: in the first its
//! Service may not have been read yet, and in the second it has. Right before each deletion the
//! object is looked at once more.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write};

use anyhow::Context as _;
use landfall_files::Loaded;
use landfall_model::dialect::openstack::LOAD_BALANCER_ID;
use landfall_model::reason::Severity;
use landfall_model::rows::{Fact, METALLB_NAMESPACE, ServiceRow};
use landfall_openstack::objects::Id;
use landfall_openstack::orphans::{self, Orphan, OrphanKind, Owner};
use serde::Serialize;

use crate::account::OpenStackInstance;
use crate::cli::{OrphansArgs, TextOutput};
use crate::fleet::Instances;
use crate::sources::{self, Texts};
use crate::table;

/// What was looked at, and what nobody owns of it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Look {
    /// Services that may own something.
    services: usize,
    looked_at: Count,
    orphans: Vec<Stray>,
    #[serde(skip)]
    owners: Vec<Owner>,
}

/// Objects that were looked at, whoever owns them.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Count {
    load_balancers: usize,
    floating_ips: usize,
    security_groups: usize,
}

/// An orphan in the cloud of an instance.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stray {
    instance: String,
    #[serde(flatten)]
    orphan: Orphan,
    /// What came of deleting it; absent: nobody tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    Deleted,
    /// By its owner or somebody else, or a Service owns it now.
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
    let mut fleet = Instances::read(&args.instances).await?;
    fleet.ensure_active()?;
    let source = if args.filename.is_empty() {
        let connection = args.cluster.connect().await?;
        fleet
            .learn_cluster(&connection, &args.cluster.origin())
            .await?;
        Source::Cluster(args.cluster.clone())
    } else {
        Source::Manifests(sources::concatenated(&args.filename, args.recursive).await?)
    };
    let mut first = look(&fleet, &source, &args).await?;
    let deletes = args.delete && !first.orphans.is_empty();
    let asks = deletes && !args.yes;
    let (mut out, mut beside) = (std::io::stdout(), std::io::stderr());
    show(&first, args.output, asks, &mut out, &mut beside)?;
    if asks && !agreed(first.orphans.len())? {
        writeln!(beside, "nothing was deleted")?;
    } else if deletes {
        let second = look(&fleet, &source, &args).await?;
        delete(&fleet, &mut first, &second, args.output).await?;
    }
    if args.output == TextOutput::Json {
        writeln!(
            std::io::stdout(),
            "{}",
            serde_json::to_string_pretty(&first)?
        )?;
    }
    let is_left = |stray: &Stray| !matches!(&stray.outcome, Some(it) if !it.is_failure());
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
    /// The Services that may own something. Who can't be read would be missed as an owner, so that
    /// this is an error.
    async fn owners(&self) -> anyhow::Result<Vec<Owner>> {
        let loaded = match self {
            Self::Cluster(cluster) => cluster.load(METALLB_NAMESPACE).await?,
            Self::Manifests(texts) => texts.loaded(),
        };
        complete(&loaded)?;
        let owners: Vec<Owner> = loaded
            .facts
            .iter()
            .filter_map(|fact| match fact {
                Fact::Service(row) => owner(row),
                _ => None,
            })
            .collect();
        anyhow::ensure!(
            !owners.is_empty() || matches!(self, Self::Cluster(_)),
            "no Service of type LoadBalancer is in these manifests, so every object would be an \
            orphan"
        );
        Ok(owners)
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

fn owner(row: &ServiceRow) -> Option<Owner> {
    (row.wants_load_balancer || row.finalized).then(|| Owner {
        service: row.key.clone(),
        uid: row.uid.clone(),
        load_balancer: row.annotations.get(LOAD_BALANCER_ID).cloned(),
    })
}

/// Looks at the clouds of all instances.
async fn look(fleet: &Instances, source: &Source, args: &OrphansArgs) -> anyhow::Result<Look> {
    let owners = source.owners().await?;
    let mut look = Look {
        services: owners.len(),
        ..Look::default()
    };
    let mut seen = BTreeSet::new();
    for account in fleet.active() {
        account
            .check()
            .await
            .with_context(|| format!("instance {}", account.instance))?;
        let found = orphans::find(&account.cloud, &account.settings, &owners).await;
        let found = found.with_context(|| {
            let OpenStackInstance {
                instance, auth_url, ..
            } = account;
            format!("instance {instance}: reading the cloud at {auth_url}")
        })?;
        look.looked_at.load_balancers += found.load_balancers;
        look.looked_at.floating_ips += found.floating_ips;
        look.looked_at.security_groups += found.security_groups;
        let mut found = found.orphans;
        found.retain(|it| !args.keep_floating_ips || it.kind != OrphanKind::FloatingIp);
        if let Source::Manifests(_) = source {
            found.retain(|it| !is_told_by_uid(it, &owners));
        }
        // Two instances may share a project.
        found.retain(|it| seen.insert(it.id.clone()));
        look.orphans.extend(found.into_iter().map(|orphan| Stray {
            instance: account.instance.clone(),
            orphan,
            outcome: None,
        }));
    }
    look.owners = owners;
    Ok(look)
}

/// Manifests seldom hold UIDs: what is a Service's by its UID alone can't be told to be nobody's.
fn is_told_by_uid(orphan: &Orphan, owners: &[Owner]) -> bool {
    let is_for = |owner: &Owner| {
        let (namespace, name) = (owner.service.namespace(), owner.service.name());
        orphan.name.ends_with(&format!("-{namespace}-{name}"))
    };
    match orphan.kind {
        OrphanKind::SecurityGroupRule => true,
        OrphanKind::SecurityGroup => owners.iter().any(is_for),
        OrphanKind::FloatingIp | OrphanKind::LoadBalancer => false,
    }
}

/// Prints the list for people. Where programs read, they get the document at the end, and who is
/// asked sees the list beside it.
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

/// Deletes what is still nobody's, in the order in which it can be: floating IPs, load balancers,
/// then groups.
async fn delete(
    fleet: &Instances,
    first: &mut Look,
    second: &Look,
    output: TextOutput,
) -> anyhow::Result<()> {
    let still: BTreeSet<&Id> = second.orphans.iter().map(|it| &it.orphan.id).collect();
    for stray in &mut first.orphans {
        let orphan = &stray.orphan;
        let account = fleet.active().find(|it| it.instance == stray.instance);
        let outcome = match account {
            Some(account) if still.contains(&orphan.id) => {
                let OpenStackInstance {
                    cloud, settings, ..
                } = account;
                match orphans::delete(cloud, settings, &second.owners, orphan).await {
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
        let failed = |stray: &&Stray| stray.outcome.as_ref().is_some_and(Outcome::is_failure);
        let deleted = |stray: &&Stray| matches!(stray.outcome, Some(Outcome::Deleted));
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
            } = &stray.orphan;
            vec![
                kind.to_string(),
                name.clone(),
                id.to_string(),
                whose.clone(),
                stray.instance.clone(),
            ]
        });
        let header = ["KIND", "NAME", "ID", "WHOSE", "INSTANCE"];
        let _ = writeln!(text, "{}\n", table::render(&header, rows.collect()));
    }
    let Count {
        load_balancers,
        floating_ips,
        security_groups,
    } = look.looked_at;
    let _ = writeln!(
        text,
        "{} orphans among {load_balancers} load balancers, {floating_ips} floating IPs and \
        {security_groups} security groups; {} Services",
        look.orphans.len(),
        look.services
    );
    text
}

#[cfg(test)]
mod tests {
    use landfall_model::{ServiceKey, Uid};
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
        assert!(owner(&row(true, false)).is_some());
        assert!(owner(&row(false, true)).is_some());
        assert!(owner(&row(false, false)).is_none());
    }

    #[test]
    fn nobody_is_asked_about_what_was_not_shown() {
        let look = Look {
            orphans: vec![Stray {
                instance: "openstack".to_owned(),
                orphan: Orphan {
                    kind: OrphanKind::LoadBalancer,
                    id: Id::new("1"),
                    name: "kube_service_c1_default_gone".to_owned(),
                    whose: "of default/gone".to_owned(),
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

    #[test]
    fn without_uids_a_group_is_told_by_the_name_of_its_service() {
        let owners = [Owner {
            service: ServiceKey::new("shop", "web"),
            uid: Uid::new("made-up"),
            load_balancer: None,
        }];
        let orphan = |kind, name: &str| Orphan {
            kind,
            id: Id::new("1"),
            name: name.to_owned(),
            whose: String::new(),
        };
        let group = |name| is_told_by_uid(&orphan(OrphanKind::SecurityGroup, name), &owners);
        assert!(group("lb-sg-real-shop-web"));
        assert!(!group("lb-sg-real-shop-old"));
        assert!(is_told_by_uid(
            &orphan(OrphanKind::SecurityGroupRule, "port 1"),
            &owners
        ));
    }
}
