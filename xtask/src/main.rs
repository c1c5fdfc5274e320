//! What developers run: the one test command (`cargo xtask ci`), the rules of the project
//! (`cargo xtask check`) and the benchmarks (`cargo xtask bench`).
//!
//! It is never shipped, and it decides nothing about Landfall: it runs programs and reads files.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for people: tables go to standard output, progress to standard error"
)]

mod bench;
mod cargo;
mod check;
mod ci;
mod debian;
mod failures;
mod fuzz;
mod generate;
mod go;
mod image;
mod openstack;
mod packaging;
mod place;
mod screenshots;
mod search;
mod soak;
mod stage;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Landfall's developer commands. `cargo xtask ci` is the one that must pass.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    max_term_width = 100,
    after_help = "While working:   cargo xtask check        (a few minutes the first time, then \
                 seconds)\n\
                 Before pushing:  cargo xtask ci           (everything, from nothing, never \
                 skips)\n\
                 To compare:      cargo xtask bench proxy  (on a machine that has nothing else to \
                 do)"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything: install missing packages, check, test, demo, short benchmarks
    #[command(after_help = ci::HELP)]
    Ci(ci::CiArgs),
    /// Run formatting, lints, documentation, licences and words, but no tests
    #[command(after_help = check::HELP)]
    Check(check::CheckArgs),
    /// Install what tests and benchmarks need: Debian packages (as root), cargo-deny, helm,
    /// OpenStack
    #[command(after_help = debian::HELP)]
    Install(debian::InstallArgs),
    /// Rewrite the pages that are generated from tables in the code
    #[command(after_help = generate::HELP)]
    Generate(generate::GenerateArgs),
    /// Build the container image, without an engine and without network
    #[command(after_help = image::HELP)]
    Image(image::ImageArgs),
    /// Start or stop the OpenStack that tests run against
    #[command(subcommand, after_help = openstack::HELP)]
    Openstack(openstack::Openstack),
    /// Measure Landfall against its peers, in the same run
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run all property tests with fresh seeds, at length
    #[command(after_help = search::HELP)]
    Search(search::SearchArgs),
    /// Test parsers of network and files with random input, at length
    #[command(after_help = fuzz::HELP)]
    Fuzz(fuzz::FuzzArgs),
    /// Misuse Services in every way for an hour, beside others under load, and measure those
    #[command(after_help = soak::HELP)]
    Soak(soak::SoakArgs),
    /// Make screenshots of the status page, light, dark and on a phone
    #[command(after_help = screenshots::HELP)]
    Screenshots(screenshots::ScreenshotsArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            error
                .downcast_ref::<stage::Interrupted>()
                .map_or(ExitCode::FAILURE, |interrupted| {
                    ExitCode::from(interrupted.code())
                })
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let place = place::Place::find()?;
    match cli.command {
        Command::Ci(args) => stage::block_on(ci::run(&place, &args)),
        Command::Check(args) => stage::block_on(check::run(&place, &args)),
        Command::Install(args) => stage::block_on(debian::run(&place, &args)),
        Command::Generate(args) => stage::block_on(generate::run(&place, &args)),
        Command::Image(args) => stage::block_on(image::run(&place, &args)),
        Command::Openstack(command) => stage::block_on(openstack::run(&place, command)),
        Command::Bench(bench) => bench::run(&place, bench),
        Command::Search(args) => stage::block_on(search::run(&place, &args)),
        Command::Fuzz(args) => stage::block_on(fuzz::run(&place, &args)),
        Command::Soak(args) => stage::block_on(soak::run(&place, &args)),
        Command::Screenshots(args) => stage::block_on(screenshots::run(&place, &args)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_explains_itself() {
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
        Cli::command().debug_assert();
        walk(&Cli::command());
    }
}
