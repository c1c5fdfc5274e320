//! What many addresses cost the controller that assigns them: time, CPU, and writes to a real API
//! server, beside MetalLB's controller on the same machine.

mod contestant;
mod writes;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use landfall_testkit::cluster::{Cluster, Options};

use self::contestant::{Contestant, Controller, NAMESPACE};
use self::writes::Writes;
use super::cluster::kubectl_in_parts;
use super::failover::absolute;
use super::proxy::{machine, process};
use crate::place::Place;

/// Help of `bench addresses`.
pub const HELP: &str = "\
Takes some minutes. Needs kube-apiserver, etcd and kubectl as the tests do, and installs them if
they are missing. Each controller has a cluster of its own, one after the other: a pool with one
address for each Service, which is full then; a restart; one more Service, and some that are
deleted.

Examples:
  cargo xtask bench addresses
  cargo xtask bench addresses --services 500 --deleted 50
  cargo xtask bench addresses --metallb ~/.cache/landfall/metallb/v0.15.2";

/// `bench addresses`
#[derive(Debug, Args)]
pub struct AddressesArgs {
    /// Services
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5_000,
        value_parser = clap::value_parser!(u32).range(2..=60_000)
    )]
    services: u32,
    /// How many of them are deleted while another one waits for an address
    #[arg(long, value_name = "N", default_value_t = 500)]
    deleted: u32,
    /// A folder with MetalLB's `controller` and its `manifest.yaml`, to be measured, too
    #[arg(long, value_name = "FOLDER")]
    metallb: Option<PathBuf>,
    /// The Landfall to measure, if not the one just built
    #[arg(long, value_name = "PROGRAM")]
    pub landfall: Option<PathBuf>,
}

/// The longest that anything is waited for.
const DEADLINE: Duration = Duration::from_secs(600);

/// How long no write makes it an end, and after how long without an address for another Service the
/// API server is asked which have one.
const QUIET: Duration = Duration::from_secs(10);

/// From one reading of the audit log to the next.
const TICK: Duration = Duration::from_millis(10);

/// The Service that no address is left for.
const WAITING: &str = "waiting";

/// Runs `bench addresses`.
pub async fn run(place: &Place, args: &AddressesArgs) -> anyhow::Result<()> {
    if args.deleted == 0 || args.deleted >= args.services {
        bail!(
            "--deleted {} is not between 1 and the number of Services, {}",
            args.deleted,
            args.services
        );
    }
    let metallb = args.metallb.as_ref().map(absolute).transpose()?;
    let built = place.target().join("dist/landfall");
    let landfall = absolute(args.landfall.as_ref().unwrap_or(&built))?;
    let contestants = metallb.map(|folder| Contestant::MetalLb { folder });
    for contestant in contestants
        .into_iter()
        .chain([Contestant::Landfall { program: landfall }])
    {
        println!(
            "{contestant}, {} Services; load {}",
            args.services,
            machine::load()
        );
        measure(place, &contestant, args).await?;
    }
    Ok(())
}

async fn measure(
    place: &Place,
    contestant: &Contestant,
    args: &AddressesArgs,
) -> anyhow::Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    contestant.install(place, &cluster, args.services).await?;
    let controller = contestant.start(&cluster).await?;

    let mut writes = Writes::of(contestant.user(), &cluster);
    kubectl_in_parts(&cluster, "create", args.services, |number| {
        service(&format!("web-{number}"))
    })
    .await?;
    let created = Instant::now();
    until(&cluster, &mut writes, |it| {
        it.addressed() >= args.services as usize
    })
    .await?;
    let last = writes.last_addressed().unwrap_or(created);
    let addressed = last.duration_since(created);
    quiet(&mut writes).await?;
    println!(
        "  all addressed               {addressed:.1?} after the last was created, CPU {:.1} s",
        process::cpu_seconds(&[controller.pid()?])?
    );
    println!("  writes                      {writes}");
    let resident = process::resident(&[controller.pid()?])? / 1024.0 / 1024.0;
    println!("  resident memory             {resident:.1} MiB");
    controller.stop().await?;

    let controller = restart(contestant, &cluster).await?;
    deletions(&cluster, contestant, args).await?;
    controller.stop().await
}

/// Measures what a controller does that starts where nothing changed.
async fn restart(contestant: &Contestant, cluster: &Cluster) -> anyhow::Result<Controller> {
    let mut writes = Writes::of(contestant.user(), cluster);
    let began = Instant::now();
    let controller = contestant.start(cluster).await?;
    let last = quiet(&mut writes).await?;
    println!(
        "  a restart                   {writes}; the last after {:.1?}, CPU {:.1} s, {:.1} MiB",
        last.map_or(Duration::ZERO, |last| last.duration_since(began)),
        process::cpu_seconds(&[controller.pid()?])?,
        process::resident(&[controller.pid()?])? / 1024.0 / 1024.0
    );
    Ok(controller)
}

/// Measures how long a Service waits once others are deleted.
async fn deletions(
    cluster: &Cluster,
    contestant: &Contestant,
    args: &AddressesArgs,
) -> anyhow::Result<()> {
    kubectl_in_parts(cluster, "create", 1, |_| service(WAITING)).await?;
    quiet(&mut Writes::of(contestant.user(), cluster)).await?;
    let mut writes = Writes::of(contestant.user(), cluster);
    let began = Instant::now();
    tokio::try_join!(
        kubectl_in_parts(cluster, "delete", args.deleted, |number| {
            service(&format!("web-{number}"))
        }),
        until(cluster, &mut writes, |it| it.waited().is_some())
    )?;
    let waited = writes.waited().unwrap_or_default();
    let last = quiet(&mut writes).await?;
    println!(
        "  {} deleted, one waits       addressed {waited:.2?} after the first was gone; {writes}; \
         the last after {:.1?}",
        args.deleted,
        last.map_or(Duration::ZERO, |last| last.duration_since(began)),
    );
    println!(
        "  ... of the one that waits   {} writes",
        writes.of_waiting()
    );
    Ok(())
}

/// Reads the writes until they are as expected. A server that times out may have done a write, and
/// then there is no other one: what counts is what the Services have.
async fn until(
    cluster: &Cluster,
    writes: &mut Writes,
    done: impl Fn(&Writes) -> bool,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let (mut before, mut since) = (0, began);
    loop {
        writes.look()?;
        if done(writes) {
            return Ok(());
        }
        if began.elapsed() > DEADLINE {
            bail!(
                "not done after {DEADLINE:?}: {writes}, {} addressed",
                writes.addressed()
            );
        }
        if writes.addressed() != before {
            (before, since) = (writes.addressed(), Instant::now());
        } else if since.elapsed() > QUIET {
            since = Instant::now();
            // A server that times out may do so here, too: it is asked again.
            for service in addressed(cluster).await.unwrap_or_default() {
                writes.observe(&service);
            }
            continue;
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Reads which Services have an address.
async fn addressed(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let columns = "jsonpath={range .items[*]}{.metadata.name} {.status.loadBalancer.ingress[*].ip}\
                   {\"\\n\"}{end}";
    let arguments = ["get", "services", "--namespace", "default", "-o", columns];
    let text = cluster.kubectl().run(&arguments).await?;
    Ok(with_addresses(&text))
}

/// Returns the names of lines that have an address as well.
fn with_addresses(lines: &str) -> Vec<String> {
    let pairs = lines.lines().filter_map(|line| line.split_once(' '));
    pairs
        .filter(|(_, addresses)| !addresses.trim().is_empty())
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Reads the writes until there is none for a while; returns when the last one was seen.
async fn quiet(writes: &mut Writes) -> anyhow::Result<Option<Instant>> {
    let (began, mut last) = (Instant::now(), None);
    loop {
        if writes.look()? > 0 {
            last = Some(Instant::now());
        }
        if last.unwrap_or(began).elapsed() > QUIET {
            return Ok(last);
        }
        if began.elapsed() > DEADLINE {
            bail!("writes do not end within {DEADLINE:?}: {writes}");
        }
        tokio::time::sleep(TICK).await;
    }
}

/// A Service of no class.
fn service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         type: LoadBalancer\n  selector: {{app: {name}}}\n  ports: [{{port: 80}}]\n  \
         allocateLoadBalancerNodePorts: false\n---\n"
    )
}

/// The pool: exactly as many addresses as Services.
fn pool(services: u32) -> String {
    let first = std::net::Ipv4Addr::new(10, 90, 0, 0);
    let last = std::net::Ipv4Addr::from(u32::from(first) + services - 1);
    format!(
        "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {{name: all, namespace: \
         {NAMESPACE}}}\nspec: {{addresses: [{first}-{last}]}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_with_an_address_are_read_from_what_kubectl_prints() {
        let lines = "kubernetes \nweb-1 10.90.0.0\nwaiting \nweb-2 10.90.0.1 fd00::1\n";
        assert_eq!(with_addresses(lines), ["web-1", "web-2"]);
    }
}
