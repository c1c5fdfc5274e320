//! What tests and benchmarks need from outside, and how it gets here: Debian packages.
//!
//! As root on Debian missing packages are installed; otherwise the exact command to type is the
//! error. Nothing is ever skipped. No service is started by an installation, and nothing that an
//! installation needs is left behind.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use tokio::process::Command;

use crate::place::Place;
use crate::stage::{self, Stages};
use crate::tools;

/// Help of `install`.
pub const HELP: &str = "\
Debian packages need root; without it the command is printed, and nothing else is done.
Tools that are built (cargo-deny, and helm with Go) and OpenStack's Python packages go to
$LANDFALL_CACHE (default ~/.cache/landfall), keyed by their version.
Packages that bring a service (nginx, haproxy, frr, bird, gobgp, prometheus, mariadb,
rabbitmq, ovn) do not start it.";

/// `install`
#[derive(Debug, Args)]
pub struct InstallArgs {}

/// Something that a test or benchmark starts.
#[derive(Debug, PartialEq, Eq)]
pub struct Need {
    /// The Debian package.
    package: &'static str,
    /// Any of these shows that it is here: names are looked up in PATH, paths are checked.
    shown_by: &'static [&'static str],
}

/// For the tests: a browser for the status page, a client that isn't ours, network tools,
/// neighbours that aren't ours; then what the OpenStack of the test bed stands on.
pub const FOR_TESTS: &[Need] = &[
    Need {
        package: "chromium",
        shown_by: &["chromium", "chromium-browser", "google-chrome"],
    },
    Need {
        package: "curl",
        shown_by: &["curl"],
    },
    Need {
        package: "iproute2",
        shown_by: &["ip"],
    },
    Need {
        package: "libcap2-bin",
        shown_by: &["setcap"],
    },
    Need {
        package: "nftables",
        shown_by: &["nft"],
    },
    Need {
        package: "conntrack",
        shown_by: &["conntrack"],
    },
    Need {
        package: "iputils-arping",
        shown_by: &["arping"],
    },
    Need {
        package: "ndisc6",
        shown_by: &["ndisc6"],
    },
    Need {
        package: "tcpdump",
        shown_by: &["tcpdump"],
    },
    Need {
        package: "frr",
        shown_by: &["/usr/lib/frr/bgpd"],
    },
    Need {
        // For MetalLB's FRR mode in `bench failover`.
        package: "frr-pythontools",
        shown_by: &["/usr/lib/frr/frr-reload.py"],
    },
    Need {
        package: "bird2",
        shown_by: &["bird"],
    },
    Need {
        package: "gobgpd",
        shown_by: &["gobgpd"],
    },
    Need {
        package: "prometheus",
        shown_by: &["promtool"],
    },
    Need {
        package: "mariadb-server",
        shown_by: &["mariadbd"],
    },
    Need {
        package: "rabbitmq-server",
        shown_by: &["/usr/lib/rabbitmq/bin/rabbitmq-server"],
    },
    Need {
        package: "ovn-central",
        shown_by: &["/usr/share/ovn/ovn-nb.ovsschema"],
    },
    Need {
        package: "python3-venv",
        // A part of Python's library that Debian keeps in a package of its own, by version.
        shown_by: &[
            "/usr/lib/python3.11/ensurepip",
            "/usr/lib/python3.12/ensurepip",
            "/usr/lib/python3.13/ensurepip",
            "/usr/lib/python3.14/ensurepip",
        ],
    },
    Need {
        package: "openssl",
        shown_by: &["openssl"],
    },
];

/// For `screenshots`: the letters that the status page asks for first, so that pictures look alike
/// on every machine.
pub const FOR_PICTURES: &[Need] = &[
    Need {
        package: "fonts-inter",
        shown_by: &["/usr/share/fonts/opentype/inter/Inter-Regular.otf"],
    },
    Need {
        package: "fonts-jetbrains-mono",
        shown_by: &["/usr/share/fonts/truetype/jetbrains-mono/JetBrainsMono-Regular.ttf"],
    },
];

/// For `bench proxy`: the peers.
pub const FOR_BENCH: &[Need] = &[
    Need {
        package: "haproxy",
        shown_by: &["haproxy"],
    },
    Need {
        package: "nginx",
        shown_by: &["nginx"],
    },
    Need {
        package: "libnginx-mod-stream",
        shown_by: &[STREAM_MODULE],
    },
];

/// Debian's nginx loads its stream support from here.
pub const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// An installation of packages may take this long; a slow mirror needs most of it.
const DEADLINE: Duration = Duration::from_mins(20);

/// Runs `install`.
pub async fn run(place: &Place, _args: &InstallArgs) -> anyhow::Result<()> {
    let mut stages = Stages::new(1 + tools::STAGES);
    install(&mut stages, &[FOR_TESTS, FOR_BENCH]).await?;
    tools::install(&mut stages, place).await?;
    stages.summary();
    Ok(())
}

/// A stage that installs what is missing of these needs.
pub async fn install(stages: &mut Stages, needs: &[&[Need]]) -> anyhow::Result<()> {
    let missing = missing(needs);
    if missing.is_empty() {
        return stages
            .work("packages", "nothing is missing", async { Ok(()) })
            .await;
    }
    let line = format!(
        "apt-get install -y --no-install-recommends {}",
        missing.join(" ")
    );
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!(
            "missing: {}. This is no Debian, so install them by hand, then repeat the command",
            missing.join(", ")
        );
    }
    if !rustix::process::geteuid().is_root() {
        bail!(
            "missing: {}. Only root can install packages: run this, then repeat the command:\n  \
             sudo apt-get update && sudo {line}",
            missing.join(", ")
        );
    }
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", INSTALL, "install"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive");
    stages
        .work("packages", &line, async {
            stage::run_group(&mut shell, DEADLINE).await
        })
        .await?;
    let still = self::missing(needs);
    if !still.is_empty() {
        bail!("installed, but still not found: {}", still.join(", "));
    }
    Ok(())
}

/// Debian starts a package's service when it is installed, unless policy-rc.d says no. Ours says
/// no for as long as this script runs; a policy that is there already is left alone, and so is one
/// that an administrator puts there meanwhile.
const INSTALL: &str = r#"
policy=/usr/sbin/policy-rc.d
mark='# written by cargo xtask for the time of one installation'
ours() { [ -f "$policy" ] && grep -qxF "$mark" "$policy"; }
end() { if ours; then rm -f "$policy"; fi; }
trap end EXIT
trap 'exit 143' HUP INT TERM
if [ ! -e "$policy" ] || ours; then
  printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >"$policy"
  chmod 755 "$policy"
fi
apt-get update -q
apt-get install -q -y --no-install-recommends "$@"
"#;

fn missing(needs: &[&[Need]]) -> Vec<&'static str> {
    needs
        .iter()
        .flat_map(|needs| needs.iter())
        .filter(|need| !need.shown_by.iter().any(|sign| is_here(sign)))
        .map(|need| need.package)
        .collect()
}

/// Whether a program is in PATH, or in the folders for administrators that many users lack there.
pub fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn is_here(sign: &str) -> bool {
    if sign.starts_with('/') {
        Path::new(sign).exists()
    } else {
        find(sign).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_here_is_not_missing_and_what_is_not_here_is() {
        let shell = Need {
            package: "dash",
            shown_by: &["no-such-shell", "sh"],
        };
        let file = Need {
            package: "base-files",
            shown_by: &["/"],
        };
        let none = Need {
            package: "none",
            shown_by: &["no-such-program", "/no/such/file"],
        };
        assert_eq!(missing(&[&[shell], &[none, file]]), ["none"]);
    }
}
