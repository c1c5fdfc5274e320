//! The status page with canned facts, so that it can be worked on without an engine, and pictures
//! of it, or of the page of a running instance.
//!
//! `cargo run -p landfall-web --example fixture -- serve shop`
//! `cargo xtask screenshots`

mod stage;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use landfall_testkit::browser::{Browser, Screen};
use landfall_web::Options;
use stage::{Stage, scenes};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

#[derive(Parser)]
enum Command {
    /// Serves one scene until Ctrl-C.
    Serve {
        /// What is shown.
        #[arg(default_value = "shop", value_parser = scenes::NAMES)]
        scene: String,
        /// Where it is served.
        #[arg(long, default_value = "127.0.0.1:9640")]
        admin: SocketAddr,
        /// Goes on to the next scene after so many seconds, again and again.
        #[arg(long)]
        cycle: Option<u64>,
        /// Plays an instance whose control loop is stuck.
        #[arg(long)]
        stuck: bool,
    },
    /// Writes status-light.png, status-dark.png and status-phone.png.
    Shoot(Shoot),
}

#[derive(clap::Args)]
struct Shoot {
    /// The status page of a running instance; without it, a canned scene is shown.
    #[arg(long)]
    address: Option<String>,
    /// The canned scene.
    #[arg(long, default_value = "shop", value_parser = scenes::NAMES, conflicts_with = "address")]
    scene: String,
    /// The folder that the pictures go to.
    #[arg(long, default_value = "docs/images")]
    to: PathBuf,
    /// Opens every Service first.
    #[arg(long)]
    open: bool,
    /// Waits for this many Services to be shown before the picture is taken.
    #[arg(long, default_value_t = 1)]
    services: usize,
}

/// Sparklines and rates need some reads of the counters: pictures are taken after this many.
const LOOKS: usize = 6;

/// What is outside the window may not be drawn yet, so the window holds all of the picture.
const TALL: u32 = 4000;

/// From the top to the end of the last card that fits into a picture.
const WHOLE_CARDS: &str = "[0, Math.max(...[...document.querySelectorAll('.card')]\
    .map(one => one.getBoundingClientRect().bottom + scrollY + 5)\
    .filter(bottom => bottom <= 1500), 600)]";

/// What a telephone shows of the first Service that has members.
const ONE_PATH: &str = "(() => { const member = document.querySelector('.member'); \
    const top = member ? member.closest('.card').getBoundingClientRect().top + scrollY - 8 : 0; \
    return [top, top + 860]; })()";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Serve {
            scene,
            admin,
            cycle,
            stuck,
        } => serve(&scene, admin, cycle, stuck).await,
        Command::Shoot(shoot) => shoot.run().await,
    }
}

/// Serves a scene; the task ends when the token is cancelled.
async fn open(
    scene: &str,
    address: SocketAddr,
    cancel: &CancellationToken,
) -> anyhow::Result<(Arc<Stage>, SocketAddr, JoinHandle<()>)> {
    let stage = Stage::new(scenes::by_name(scene).context("no such scene")?);
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let serving = landfall_web::serve(
        listener,
        Arc::clone(&stage),
        Options::default(),
        cancel.clone(),
    );
    Ok((stage, address, tokio::spawn(serving)))
}

#[expect(clippy::print_stdout, reason = "a program for a terminal")]
async fn serve(
    scene: &str,
    admin: SocketAddr,
    cycle: Option<u64>,
    stuck: bool,
) -> anyhow::Result<()> {
    let cancel = CancellationToken::new();
    let (stage, address, server) = open(scene, admin, &cancel).await?;
    if stuck {
        stage.set_heartbeat_age(Duration::from_secs(42));
    }
    println!("http://{address}/");
    let cycling = async {
        let Some(seconds) = cycle else {
            return std::future::pending().await;
        };
        for name in scenes::NAMES.iter().cycle() {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            stage.play(scenes::by_name(name).unwrap_or_default());
        }
    };
    tokio::select! {
        () = cycling => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    cancel.cancel();
    Ok(server.await?)
}

// === impl Shoot ===

impl Shoot {
    #[expect(clippy::print_stdout, reason = "a program for a terminal")]
    async fn run(self) -> anyhow::Result<()> {
        let cancel = CancellationToken::new();
        let (_, own, server) = open(&self.scene, ([127, 0, 0, 1], 0).into(), &cancel).await?;
        let address = self.address.unwrap_or_else(|| format!("http://{own}/"));

        std::fs::create_dir_all(&self.to)?;
        let browser = Browser::start().await?;
        let desk = Screen {
            scale: 1.5,
            height: TALL,
            ..Screen::DESK
        };
        let phone = Screen {
            scale: 1.5,
            height: TALL,
            ..Screen::PHONE
        };
        let pictures = [
            ("status-light.png", desk, WHOLE_CARDS),
            ("status-dark.png", desk.dark(), WHOLE_CARDS),
            ("status-phone.png", phone, ONE_PATH),
        ];
        for (name, screen, part) in pictures {
            let page = browser.page(screen).await?;
            page.go(&address).await?;
            page.wait_for(&format!(
                "document.querySelectorAll('.card').length >= {}",
                self.services
            ))
            .await?;
            if self.open {
                let open = "document.querySelectorAll('details').forEach(one => one.open = true)";
                page.eval::<()>(open).await?;
            }
            page.wait_for(&format!(
                "performance.getEntriesByType('resource')\
                 .filter(one => one.name.endsWith('/api/v1/instance')).length >= {LOOKS}"
            ))
            .await?;
            let (from, to): (f64, f64) = page.eval(part).await?;
            let file = self.to.join(name);
            page.screenshot(&file, from, to).await?;
            println!("{}", file.display());
        }
        cancel.cancel();
        Ok(server.await?)
    }
}
