//! What can be typed: every command, option and default, and the help that teaches them.

mod adopt;
mod ask;
mod chosen;
mod cloud;
mod reference;
mod remarks;
mod serve;
mod speaker;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use landfall_config::access_log;
use landfall_config::provider::openstack::SecurityGroups;

pub use adopt::{AdoptArgs, AdoptFrom, AdoptMetalLbArgs, ApplyArgs};
pub use ask::{CheckArgs, ExplainArgs, GetArgs, GetOutput, Kind, PlanArgs};
pub use chosen::ChosenArgs;
pub use cloud::OrphansArgs;
pub use remarks::ReferenceArgs;
pub use serve::{
    AccessLogArgs, ControllerArgs, DemoArgs, ElectionArgs, LeaseArgs, ServeClusterArgs, UpArgs,
    WebhookOptions,
};
pub use speaker::{MembershipWay, SpeakerArgs};

/// The default admin address.
pub const DEFAULT_ADMIN: &str = "127.0.0.1:9640";

/// That of a speaker, which may run on one machine with the others.
pub const DEFAULT_SPEAKER_ADMIN: &str = "127.0.0.1:9641";

/// Assigns addresses to Kubernetes Services of type LoadBalancer and forwards their traffic.
#[derive(Debug, Parser)]
#[command(
    name = "landfall",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Start with `landfall demo`: it serves a few Services on this machine and shows \
                 what to try.\n\
                 Then `landfall up -f FOLDER` serves your own manifests."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a few bundled Services with members inside this process, to try Landfall
    Demo(DemoArgs),
    /// Serve the LoadBalancer Services of manifests on this machine
    Up(UpArgs),
    /// Serve the LoadBalancer Services of a Kubernetes cluster, as one of several replicas
    Controller(ControllerArgs),
    /// Announce the addresses of a Kubernetes cluster from one node, by ARP, NDP and BGP
    Speaker(SpeakerArgs),
    /// List Services of a running instance or a cluster, or the BGP sessions of a speaker
    Get(GetArgs),
    /// Explain one Service: spec, address, listeners and members, each with its reason
    Explain(ExplainArgs),
    /// Print the steps that manifests would cause, as a dry run
    Plan(PlanArgs),
    /// Validate manifests and annotations, with file and line
    Check(CheckArgs),
    /// Show what would be taken over from another controller, and take it over
    Adopt(AdoptArgs),
    /// List objects in the cloud that no Service owns any more, and delete them
    Orphans(OrphansArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:\n  \
                     landfall completion bash > /etc/bash_completion.d/landfall\n  \
                     landfall completion fish > ~/.config/fish/completions/landfall.fish")]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages, one per command
    #[command(after_help = "Examples:\n  \
                     landfall man | man -l -\n  \
                     landfall man --dir /usr/local/share/man/man1")]
    Man {
        /// Folder to write them to; without it, the page of landfall itself is printed
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// The provider instances, and what they are configured with.
#[derive(Clone, Debug, Default, Args)]
pub struct InstancesArgs {
    /// landfall.yaml: the provider instances and their address pools
    #[arg(long, value_name = "FILE", env = "LANDFALL_CONFIG")]
    pub config: Option<PathBuf>,
    /// Instead of landfall.yaml: the cloud.conf of cloud-provider-openstack, for one instance on
    /// OpenStack that serves Services without a class and those of the class landfall.dev/openstack
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub cloud_config: Option<PathBuf>,
    /// The name of the cluster: part of the names of all objects on OpenStack, and a label on
    /// Exoscale where there is no cluster; overrides landfall.yaml; default: kubernetes
    #[arg(
        long,
        value_name = "NAME",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub cluster_name: Option<String>,
    /// Text before landfall/VERSION in the User-Agent of requests to clouds; may be repeated, each
    /// is put before the previous ones
    #[arg(long, value_name = "TEXT", value_parser = header_text)]
    pub user_agent: Vec<String>,
    /// The layout of security groups on OpenStack: perCluster, or perService as with
    /// cloud-provider-openstack; overrides landfall.yaml
    #[arg(long, value_name = "LAYOUT", value_parser = layout)]
    pub security_groups: Option<SecurityGroups>,
    /// Whether Services with source ranges that OpenStack can't enforce are refused, instead of
    /// exposed; overrides landfall.yaml
    #[arg(long, value_name = "BOOL")]
    pub strict_source_ranges: Option<bool>,
}

/// Returns a layout of security groups by its name in landfall.yaml.
fn layout(text: &str) -> Result<SecurityGroups, String> {
    match text {
        "perCluster" => Ok(SecurityGroups::PerCluster),
        "perService" => Ok(SecurityGroups::PerService),
        _ => Err("write perCluster or perService".to_owned()),
    }
}

/// A text that can stand in a header.
fn header_text(text: &str) -> Result<String, String> {
    let plain = |letter: char| letter == ' ' || letter.is_ascii_graphic();
    if text.trim().is_empty() || !text.chars().all(plain) {
        return Err("write ASCII letters, such as my-cluster/1.0".to_owned());
    }
    Ok(text.trim().to_owned())
}

/// The running instance to connect to.
#[derive(Debug, Args)]
pub struct AdminArgs {
    /// The admin address of the running instance
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_ADMIN, env = "LANDFALL_ADMIN")]
    pub admin: String,
    /// A file with the token of the instance, if it requires one
    #[arg(long, value_name = "FILE", env = "LANDFALL_ADMIN_TOKEN_FILE")]
    pub admin_token_file: Option<PathBuf>,
}

/// The API server of a cluster instead of a running instance.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterArgs {
    /// The kubeconfig of a cluster to read. Without it, get, explain and plan connect to a running
    /// instance, adopt and orphans to the cluster that kubectl uses
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, instead of its current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Output formats of other commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TextOutput {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Formats of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AccessLogFormat {
    /// One JSON object per line, with all fields
    Json,
    /// The common log format
    Common,
    /// The common log format with Referer and User-Agent
    Combined,
}

/// Formats of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

// === impl Cli ===

impl Cli {
    /// Reads the command line. What is no command line ends the process with an explanation, and
    /// so does a question for help.
    pub fn read() -> Self {
        Self::try_read(std::env::args_os().collect()).unwrap_or_else(|error| error.exit())
    }

    fn try_read(arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        let mut program = reference::accepting(Self::command());
        let matches = program.try_get_matches_from_mut(reference::renamed(arguments))?;
        let cli = Self::from_arg_matches(&matches);
        let mut cli = cli.map_err(|error| error.format(&mut program))?;
        if let (Command::Controller(args), Some((_, given))) =
            (&mut cli.command, matches.subcommand())
        {
            let kind = ErrorKind::ValueValidation;
            reference::apply(args, given)
                .map_err(|why| refusal(&mut program, reference::COMMAND, kind, why))?;
        }
        Ok(cli)
    }

    /// Returns an error about the arguments of a command, with its usage.
    pub fn refused(command: &str, kind: ErrorKind, why: &str) -> clap::Error {
        let mut program = Self::command();
        program.build();
        refusal(&mut program, command, kind, why)
    }
}

fn refusal(
    program: &mut clap::Command,
    command: &str,
    kind: ErrorKind,
    why: impl std::fmt::Display,
) -> clap::Error {
    match program.find_subcommand_mut(command) {
        Some(command) => command.error(kind, why),
        None => program.error(kind, why),
    }
}

// === impl AccessLogFormat ===

impl From<AccessLogFormat> for access_log::AccessLogFormat {
    fn from(format: AccessLogFormat) -> Self {
        match format {
            AccessLogFormat::Json => Self::Json,
            AccessLogFormat::Common => Self::Common,
            AccessLogFormat::Combined => Self::Combined,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_option_explains_itself() {
        fn walk(command: &clap::Command) {
            assert!(
                command.get_about().is_some(),
                "{} has no help",
                command.get_name()
            );
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {} has no help",
                    command.get_name(),
                    argument.get_id()
                );
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Cli::command());
    }

    #[test]
    fn what_is_no_user_agent_is_refused_before_anything_is_asked() {
        let parse = |agents: &[&str]| {
            let given = agents.iter().flat_map(|agent| ["--user-agent", agent]);
            Cli::try_parse_from(["landfall", "controller"].into_iter().chain(given))
        };
        let Command::Controller(args) = parse(&["one/1", " two "]).unwrap().command else {
            panic!();
        };
        assert_eq!(args.instances.user_agent, ["one/1", "two"]);
        for wrong in ["", " ", "a\nb", "ä", "a\tb"] {
            assert!(parse(&[wrong]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_of_the_election_are_seconds_that_can_be_waited_for() {
        let parse =
            |text: &str| Cli::try_parse_from(["landfall", "controller", "--lease-duration", text]);
        assert!(parse("10").is_ok() && parse("2.5").is_ok());
        for wrong in ["1e19", "-1", "3601", "inf", "NaN", "soon"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_admin_endpoint_is_on_loopback_by_default() {
        let admin = |arguments: &[&str]| match Cli::parse_from(arguments).command {
            Command::Controller(args) => args.admin,
            Command::Up(args) => args.admin,
            _ => unreachable!("{arguments:?}"),
        };
        for serving in [
            &["landfall", "controller"][..],
            &["landfall", "up", "-f", "x"],
        ] {
            assert_eq!(admin(serving).to_string(), "127.0.0.1:9640");
        }
        let reported = ["landfall", "controller", "--admin", "0.0.0.0:9640"];
        assert_eq!(admin(&reported).to_string(), "0.0.0.0:9640");
    }

    #[test]
    fn a_sample_is_a_share() {
        let parse = |text: &str| {
            let log = ["landfall", "controller", "--access-log", "-"];
            Cli::try_parse_from(log.into_iter().chain(["--access-log-sample", text]))
        };
        for good in ["0", "1", "0.01"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for wrong in ["-0.1", "1.01", "NaN", "inf", "some"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn up_without_a_path_is_refused() {
        assert!(Cli::try_parse_from(["landfall", "up"]).is_err());
    }
}
