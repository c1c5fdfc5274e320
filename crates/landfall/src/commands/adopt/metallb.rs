//! `landfall adopt metallb`: what a controller that started now would take over from MetalLB, which
//! node announces each address before and after, and, with `--apply`, one run of it. With `--back`
//! the way back.

use std::io::Write as _;

use anyhow::Context as _;
use landfall_config::file;
use landfall_kube::{Connection, objects};
use landfall_model::ServiceKey;
use landfall_model::rows::METALLB_NAMESPACE;
use landfall_model::status::ConditionType;

use self::installed::Installed;
use self::survey::{SHARES, Survey};
use super::apply::Turn;
use crate::cli::{AdoptMetalLbArgs, ChosenArgs, InstancesArgs, TextOutput};
use crate::instances::Instances;

mod back;
mod installed;
mod obstacles;
mod survey;
mod text;
mod values;

/// What both ways work on.
struct Scene {
    connection: Connection,
    instances: Instances,
    installed: Installed,
    /// The configuration that was assumed because none was named.
    assumed: Option<String>,
}

/// Runs the command; says whether everything can be taken over, or given back, as it is.
pub async fn run(args: AdoptMetalLbArgs) -> anyhow::Result<bool> {
    if let Some(path) = &args.values {
        let read = tokio::fs::read_to_string(path).await;
        let text = read.with_context(|| format!("reading {}", path.display()))?;
        let namespace = args.metallb_namespace.as_deref();
        let translated = values::translate(&text, namespace.unwrap_or(METALLB_NAMESPACE))?;
        write!(std::io::stdout(), "{}", values::file(&translated)?)?;
        return Ok(true);
    }
    let scene = Scene::read(&args).await?;
    let loaded = args.cluster.load(&scene.instances.resources()).await?;
    if args.back {
        return back::run(&args, scene, loaded).await;
    }
    let survey = survey::survey(&scene.instances, loaded, &scene.installed).await;
    let text = match args.output {
        TextOutput::Text => text::describe(&survey, scene.assumed.as_deref()),
        TextOutput::Json => serde_json::to_string_pretty(&survey)?,
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    if !args.apply {
        return Ok(survey.is_sound());
    }
    let taken = apply(&args, scene, &survey).await?;
    Ok(taken && survey.is_sound())
}

async fn apply(args: &AdoptMetalLbArgs, scene: Scene, survey: &Survey) -> anyhow::Result<bool> {
    refuse(survey.first.iter().filter(|it| it.blocks))?;
    anyhow::ensure!(
        !survey.services.iter().any(|it| it.moves),
        "addresses would move, for the reasons above: nothing was written"
    );
    anyhow::ensure!(
        !scene.instances.carries_traffic(),
        "--apply would also begin to serve Services on this machine, for which landfall.yaml has \
         an instance; start landfall controller where it should run"
    );
    for pool in &survey.pools {
        allow_sharing(&scene.connection, pool).await?;
    }
    let chosen = ChosenArgs::default();
    let turn = Turn {
        cluster: &args.cluster,
        lease: &args.lease,
        output: args.output,
        chosen: &chosen,
        condition: ConditionType::Addressed,
        held: "a controller of Landfall that holds it takes over by itself",
    };
    turn.run(scene.instances, &survey.takes()).await
}

/// Fails with what stands in the way, each with its remedy.
fn refuse<'a>(obstacles: impl Iterator<Item = &'a obstacles::Obstacle>) -> anyhow::Result<()> {
    let lines = obstacles.map(|it| format!("{}\n    {}", it.what, it.remedy));
    let lines: Vec<String> = lines.collect();
    anyhow::ensure!(
        lines.is_empty(),
        "nothing was written:\n  {}",
        lines.join("\n  ")
    );
    Ok(())
}

/// Lets Services of different namespaces share addresses of a pool, as they do.
async fn allow_sharing(connection: &Connection, pool: &ServiceKey) -> anyhow::Result<()> {
    let path = format!(
        "/apis/metallb.io/v1beta1/namespaces/{}/ipaddresspools/{}",
        pool.namespace(),
        pool.name()
    );
    let what = "patch ipaddresspools.metallb.io";
    let written = objects::annotate(connection, &path, what, (SHARES, "true"));
    written
        .await
        .with_context(|| format!("annotating the IPAddressPool {pool}"))
}

// === impl Scene ===

impl Scene {
    async fn read(args: &AdoptMetalLbArgs) -> anyhow::Result<Self> {
        let connection = args.cluster.connect().await?;
        let Some(path) = &args.config else {
            let namespace = args.metallb_namespace.as_deref();
            let namespace = namespace.unwrap_or(METALLB_NAMESPACE);
            let installed = Installed::read(&connection, namespace).await;
            let assumed = assumed(&installed);
            let config = file::parse("the assumed landfall.yaml", &assumed)?;
            return Ok(Self {
                instances: Instances::of_config(config).await?.in_cluster(),
                assumed: Some(assumed),
                connection,
                installed,
            });
        };
        let described = InstancesArgs {
            config: Some(path.clone()),
            ..InstancesArgs::default()
        };
        // What else the configuration has is none of MetalLB's.
        let instances = Instances::read(&described).await?.in_cluster();
        let instances = instances.without_clouds();
        anyhow::ensure!(
            instances.has_metal(),
            "{} has no instance on bare metal; add one, for example:\n{}",
            path.display(),
            assumed(&Installed::default())
        );
        let namespace = instances.resources().namespace;
        Ok(Self {
            installed: Installed::read(&connection, &namespace).await,
            connection,
            instances,
            assumed: None,
        })
    }
}

/// Returns the landfall.yaml of a controller in the place of MetalLB's.
fn assumed(installed: &Installed) -> String {
    let serves = match &installed.class {
        Some(class) => format!("classNames: [{}]", serde_json::Value::from(class.as_str())),
        None => "default: true".to_owned(),
    };
    let namespace = match installed.namespace.as_str() {
        "" | METALLB_NAMESPACE => String::new(),
        other => format!("metallbNamespace: {other}\n"),
    };
    format!("{namespace}instances:\n- name: metal\n  provider: metal\n  {serves}\n")
}

#[cfg(test)]
mod tests;
