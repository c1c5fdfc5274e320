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

/// Writes one man page per command.
pub fn man(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making the folder {}", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir)
        .with_context(|| format!("writing man pages to {}", dir.display()))
}
