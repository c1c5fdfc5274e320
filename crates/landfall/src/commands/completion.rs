//! Completion scripts and man pages, made from the definition of the command line.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::cli::Cli;

/// Prints the completion script of a shell.
pub fn completion(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "landfall", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}

/// Writes one man page per command, or prints the page of the program itself.
pub fn man(dir: Option<&Path>) -> anyhow::Result<()> {
    let pages = pages()?;
    let Some(dir) = dir else {
        let program = pages.first().map(|(_, text)| text.as_slice());
        std::io::stdout().write_all(program.unwrap_or_default())?;
        return Ok(());
    };
    std::fs::create_dir_all(dir).with_context(|| format!("making the folder {}", dir.display()))?;
    for (name, text) in pages {
        let path = dir.join(format!("{name}.1"));
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// Returns every page with its name, that of the program first.
fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let mut program = Cli::command();
    program.build();
    let commands = program.get_subcommands().filter(|it| !it.is_hide_set());
    let mut pages = vec![page(&program, "landfall")?];
    for command in commands {
        let name = format!("landfall-{}", command.get_name());
        pages.push(page(command, &name)?);
        // `help` has every command once more.
        let is_help = |it: &clap::Command| it.get_name() == "help";
        let inner = command.get_subcommands();
        for inner in inner.filter(|it| !is_help(it) && !is_help(command)) {
            pages.push(page(inner, &format!("{name}-{}", inner.get_name()))?);
        }
    }
    let names: Vec<String> = pages.iter().map(|(name, _)| name.clone()).collect();
    for (name, text) in &mut pages {
        let others = names.iter().filter(|other| *other != name);
        let others: Vec<String> = others.map(|other| format!(".BR {other} (1)")).collect();
        writeln!(text, ".SH \"SEE ALSO\"\n{}", others.join(",\n"))?;
    }
    Ok(pages)
}

fn page(command: &clap::Command, name: &str) -> anyhow::Result<(String, Vec<u8>)> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    section(&mut text, "EXIT STATUS", &EXIT_STATUS)?;
    section(&mut text, "ENVIRONMENT", &ENVIRONMENT)?;
    section(&mut text, "FILES", &FILES)?;
    Ok((name.to_owned(), text))
}

fn section(text: &mut Vec<u8>, title: &str, entries: &[(&str, &str)]) -> anyhow::Result<()> {
    writeln!(text, ".SH \"{title}\"")?;
    for (term, meaning) in entries {
        writeln!(text, ".TP\n.B {term}\n{meaning}")?;
    }
    Ok(())
}

const EXIT_STATUS: [(&str, &str); 4] = [
    ("0", "It worked."),
    (
        "1",
        "Failure; one line on standard error gives the cause. check, plan, adopt and orphans: what \
        was checked is not in order.",
    ),
    ("2", "The command line is invalid."),
    ("130", "Ended by a second SIGINT or SIGTERM."),
];

const ENVIRONMENT: [(&str, &str); 5] = [
    ("LANDFALL_ADMIN", "The admin address, for --admin."),
    ("LANDFALL_CONFIG", "The configuration file, for --config."),
    ("LANDFALL_STATE", "The state directory of up, for --state."),
    (
        "LANDFALL_NAMESPACE",
        "The namespace of the Lease, for --namespace.",
    ),
    ("KUBECONFIG", "The cluster, if no kubeconfig is named."),
];

const FILES: [(&str, &str); 3] = [
    (
        "landfall.yaml",
        "Provider instances, classes and pools; named with --config.",
    ),
    (
        "cloud.conf",
        "The configuration of cloud-provider-openstack; named with --cloud-config.",
    ),
    (
        "$XDG_STATE_HOME/landfall, /var/lib/landfall",
        "The state of up, for users and for root.",
    ),
];
