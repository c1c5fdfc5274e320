//! `cargo xtask image`: the container image, from scratch, without an engine and without network.
//!
//! ```text
//!  build (static program) ──> layer (files) ──> archive (OCI layout, one file) ──> trial
//! ```

mod archive;
mod build;
mod contents;
mod elf;
mod layer;
mod name;
mod names;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::place::Place;
use crate::stage::Stages;
use archive::Archive;
use layer::Root;
#[cfg(test)]
pub use name::REPOSITORY;
use name::{Name, VERSION};

/// Help of `image`.
pub const HELP: &str = "\
The image has the program, the authorities that Debian's package ca-certificates brings, and four
lines about users and names. Equal programs make equal images, down to the digest.

Examples:
  cargo xtask image
  kind load image-archive target/image/landfall.tar
  sudo ctr --namespace k8s.io images import target/image/landfall.tar
  docker load < target/image/landfall.tar
  skopeo copy oci-archive:target/image/landfall.tar docker://registry.example.com/landfall:0.1.0";

/// `image`
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// The file to write [default: image/landfall.tar in cargo's target folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The name that an engine gives the image; without a tag, the version is the tag
    #[arg(long, value_name = "REPOSITORY[:TAG]", default_value_t)]
    name: Name,
    /// A static program to put in, instead of building it
    #[arg(long, value_name = "PROGRAM")]
    binary: Option<PathBuf>,
    /// Also run it from nothing but its own files: --version, names, demo --once
    #[arg(long = "try")]
    attempt: bool,
    /// Run this file in the namespaces that we are in (what --try starts)
    #[arg(long, value_name = "FILE", hide = true)]
    inside: Option<PathBuf>,
}

/// Unpacking, three runs and a demonstration.
const TRIAL_DEADLINE: Duration = Duration::from_mins(5);

/// Runs `image`.
pub async fn run(place: &Place, args: &ImageArgs) -> anyhow::Result<()> {
    if let Some(archive) = &args.inside {
        return trial::inside(archive).await;
    }
    let count = usize::from(args.binary.is_none()) + 1 + usize::from(args.attempt);
    let mut stages = Stages::new(count);
    let program = match &args.binary {
        Some(program) => program.clone(),
        None => build::program(&mut stages, place).await?,
    };
    let out = match &args.out {
        Some(out) => out.clone(),
        None => standard_file(place),
    };
    write(&mut stages, &program, &args.name, &out).await?;
    if args.attempt {
        attempt(&mut stages, &out).await?;
    }
    stages.summary();
    Ok(())
}

/// How many stages [`stages`] runs.
pub const STAGES: usize = 3;

/// Builds, writes and tries the image, as a part of a longer command. Returns the program, which is
/// the one that is shipped.
pub async fn stages(stages: &mut Stages, place: &Place) -> anyhow::Result<PathBuf> {
    let program = build::program(stages, place).await?;
    let out = standard_file(place);
    write(stages, &program, &Name::default(), &out).await?;
    attempt(stages, &out).await?;
    Ok(program)
}

fn standard_file(place: &Place) -> PathBuf {
    place.target().join("image/landfall.tar")
}

async fn attempt(stages: &mut Stages, archive: &Path) -> anyhow::Result<()> {
    let mut command = trial::command(archive)?;
    stages.run("try", TRIAL_DEADLINE, &mut command).await
}

async fn write(stages: &mut Stages, program: &Path, name: &Name, out: &Path) -> anyhow::Result<()> {
    let line = format!(
        "cargo xtask image --binary {} --out {}",
        program.display(),
        out.display()
    );
    stages
        .work("image", &line, async {
            let bytes = fs::read(program)
                .with_context(|| format!("{} can't be read", program.display()))?;
            let archive = pack(program, bytes, name)?;
            if let Some(folder) = out.parent() {
                fs::create_dir_all(folder)
                    .with_context(|| format!("{} can't be made", folder.display()))?;
            }
            fs::write(out, &archive.bytes)
                .with_context(|| format!("{} can't be written", out.display()))?;
            println!(
                "{}\n  {name}\n  {} bytes\n  {}",
                out.display(),
                archive.bytes.len(),
                archive.digest
            );
            Ok(())
        })
        .await
}

fn pack(program: &Path, bytes: Vec<u8>, name: &Name) -> anyhow::Result<Archive> {
    let elf = build::validate(program, &bytes)?;
    let authorities = layer::authorities(Path::new(layer::AUTHORITIES_OF_DEBIAN))?;
    if authorities.is_none() {
        eprintln!(
            "warning: Debian's package ca-certificates is not here, so the image knows no \
            authorities; API servers are trusted by the cluster's own"
        );
    }
    let layer = Root::new(bytes, authorities).pack()?;
    Archive::new(name, VERSION, elf.machine.architecture(), &layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_images_of_one_program_have_one_digest() {
        let program = elf::tests::file(62, &[]);
        let image = || pack(Path::new("landfall"), program.clone(), &Name::default()).unwrap();
        let (first, second) = (image(), image());
        assert_eq!(first.digest, second.digest);
        assert_eq!(first.bytes, second.bytes);
    }

    #[test]
    fn a_program_that_needs_libraries_gets_no_image() {
        let program = elf::tests::file(62, &[(3, b"/lib/ld.so\0")]);
        let error = pack(Path::new("landfall"), program, &Name::default()).unwrap_err();
        assert!(
            error.to_string().contains("an image has neither"),
            "{error}"
        );
    }
}
