//! Pages that are written from the code's own tables. Tests compare them; this rewrites them.

use std::time::Duration;

use clap::Args;

use crate::cargo::cargo;
use crate::packaging;
use crate::place::Place;
use crate::stage::Stages;

/// Help of `generate`.
pub const HELP: &str = "\
docs/annotations.md        from the tables of dialects that also parse (crates/model/src/dialect)
docs/landfall.schema.json  from the types that parse landfall.yaml (crates/config/src/file.rs)
docs/metrics.md            from the table of metrics (crates/web/src/metrics/table.rs)
deploy/landfall.yaml       from the other files beside it
deploy/crds.yaml, charts/landfall/crds/crds.yaml  from xtask/src/packaging/crds.yaml
charts/landfall/values.schema.json  its $defs, from docs/landfall.schema.json
The tests of these crates, and so `cargo xtask ci`, fail while a page differs from its table.";

/// `generate`
#[derive(Debug, Args)]
pub struct GenerateArgs {}

const DEADLINE: Duration = Duration::from_mins(20);

/// Runs `generate`.
pub async fn run(place: &Place, _args: &GenerateArgs) -> anyhow::Result<()> {
    let mut stages = Stages::new(4);
    let mut annotations = cargo(
        place,
        &["test", "-q", "-p", "landfall-model", "reference_page"],
    );
    stages
        .run("annotations", DEADLINE, annotations.env("UPDATE_DOCS", "1"))
        .await?;
    let mut metrics = cargo(
        place,
        &[
            "test",
            "-q",
            "-p",
            "landfall-web",
            "--test",
            "it",
            "metrics",
        ],
    );
    stages
        .run("metrics", DEADLINE, metrics.env("LANDFALL_BLESS", "1"))
        .await?;
    let mut schema = cargo(
        place,
        &["test", "-q", "-p", "landfall-config", "published_schema"],
    );
    stages
        .run("schema", DEADLINE, schema.env("UPDATE_DOCS", "1"))
        .await?;
    stages
        .work("packaging", "cargo xtask generate", async {
            packaging::generate(&place.root)
        })
        .await?;
    stages.summary();
    Ok(())
}
