//! The reference's command line, as its manifests and its chart have it.

use clap::CommandFactory as _;

use super::*;
use crate::cli::{Cli, Command as Chosen};

/// The arguments of the reference's manifest.
const MANIFEST: [&str; 7] = [
    "/bin/openstack-cloud-controller-manager",
    "--v=1",
    "--cluster-name=c1",
    "--cloud-config=/etc/config/cloud.conf",
    "--cloud-provider=openstack",
    "--use-service-account-credentials=false",
    "--bind-address=127.0.0.1",
];

fn read(arguments: &[&str]) -> Result<ControllerArgs, String> {
    let arguments = ["landfall"].iter().chain(arguments);
    match Cli::try_read(arguments.map(OsString::from).collect()) {
        Ok(cli) => match cli.command {
            Chosen::Controller(args) => Ok(args),
            other => panic!("{other:?}"),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// The command line of a manifest of the reference with further flags.
fn with(flags: &[&str]) -> Result<ControllerArgs, String> {
    let cloud = ["controller", "--cloud-config", "cloud.conf"];
    read(&[&cloud[..], flags].concat())
}

fn remarks(args: &ControllerArgs) -> Vec<&'static str> {
    args.reference.remarks.iter().map(|it| it.flag).collect()
}

#[test]
fn the_manifest_of_the_reference_is_served_with_its_arguments_as_they_are() {
    // With the image alone exchanged, and with image and command.
    for command in [&[][..], &["controller"]] {
        let args = read(&[command, &MANIFEST].concat()).unwrap();
        let config = args.instances.cloud_config.as_deref();
        assert_eq!(config, Some(Path::new("/etc/config/cloud.conf")));
        assert_eq!(args.instances.cluster_name.as_deref(), Some("c1"));
        assert_eq!(args.reference.level(), "info");
        assert_eq!(
            remarks(&args),
            [
                "controllers",
                "bind-address",
                "use-service-account-credentials"
            ]
        );
    }
}

#[test]
fn another_program_is_no_argument() {
    for arguments in [
        &["controller", "/bin/openstack-cinder-csi-plugin"][..],
        &["/bin/kube-controller-manager", "--v=1"],
        &["get", "openstack-cloud-controller-manager"],
    ] {
        let arguments = ["landfall"].iter().chain(arguments);
        let read = Cli::try_read(arguments.map(OsString::from).collect());
        assert!(read.is_err(), "{read:?}");
    }
}

#[test]
fn flags_with_a_meaning_have_it() {
    let args = with(&[
        "--leader-elect-lease-duration=1m30s",
        "--leader-elect-renew-deadline",
        "40s",
        "--leader-elect-retry-period=2s",
        "--leader-elect-resource-namespace=kube-system",
        "--logging-format=text",
        "-v",
        "4",
        "--controllers=-service",
        "--controllers",
        "-route,service",
        "--master=",
    ]);
    let args = args.unwrap();
    let lease = &args.election.lease;
    assert_eq!(lease.lease_duration, Duration::from_secs(90));
    assert_eq!(lease.renew_deadline, Some(Duration::from_secs(40)));
    assert_eq!(lease.retry_period, Some(Duration::from_secs(2)));
    assert_eq!(args.election.namespace.as_deref(), Some("kube-system"));
    assert_eq!(args.log_format, LogFormat::Text);
    assert_eq!(args.reference.level(), "debug");
    assert_eq!(remarks(&args), [""; 0]);
}

#[test]
fn what_landfall_does_not_do_is_refused_and_not_left_out() {
    for (flags, why) in [
        (&["--cloud-provider=aws"][..], "--cloud-provider=aws: "),
        (&["--master=https://10.0.0.1:6443"], "--kubeconfig"),
        (&["--logging-format=xml"], "text or json"),
        (&["--v=much"], "-v=much: not a number"),
        (&["--leader-elect-lease-duration=15"], "such as 15s"),
        (&["--leader-elect-retry-period=-2s"], "such as 15s"),
        (&["--controllers=*,-service"], "leaves out"),
        (&["--controllers="], "leaves out"),
        (&["--controllers=cloud-node,route"], "leaves out"),
        (
            &["--controllers=cloud-node,cloud-node-lifecycle,route,service"],
            "Landfall has no cloud-node-controller",
        ),
        (
            &["--controllers=service-lb-controller,node-route-controller"],
            "no node-route",
        ),
    ] {
        let refused = with(flags).unwrap_err();
        assert!(refused.contains(why), "{flags:?}: {refused}");
    }
    let refused = read(&["controller", "--cloud-provider=openstack"]).unwrap_err();
    assert!(refused.contains("with --cloud-config"), "{refused}");
    assert!(with(&["--cluster-nam=c1"]).is_err());
}

#[test]
fn a_reference_that_ran_all_of_its_controllers_is_missed() {
    for (flags, missed) in [
        (&["--cloud-provider=openstack"][..], true),
        (&["--controllers=*"], true),
        (&["--controllers=*,-route"], true),
        (
            &["--controllers=*,-cloud-node,-cloud-node-lifecycle,-route"],
            false,
        ),
        (
            &[
                "--cloud-provider=openstack",
                "--controllers=service-lb-controller",
            ],
            false,
        ),
        // A command line of Landfall's own.
        (&[], false),
    ] {
        let args = with(flags).unwrap();
        assert_eq!(!args.reference.remarks.is_empty(), missed, "{flags:?}");
        assert!(args.reference.remarks.iter().all(|it| it.matters));
    }
}

#[test]
fn each_other_flag_is_accepted_in_each_form_and_said_to_have_no_effect() {
    for unused in &UNUSED {
        for name in unused.values {
            for flags in [
                &[&*format!("--{name}=-1")][..],
                &[&*format!("--{name}"), "a,b"],
            ] {
                assert_eq!(remarks(&with(flags).unwrap()), [*name]);
            }
            assert!(with(&[&*format!("--{name}")]).is_err(), "{name}");
        }
        for name in unused.switches {
            for flag in [format!("--{name}"), format!("--{name}=false")] {
                assert_eq!(remarks(&with(&[&flag]).unwrap()), [*name]);
            }
        }
    }
}

#[test]
fn help_and_completion_do_not_have_them() {
    let own = Cli::command();
    let own = own.find_subcommand(COMMAND).unwrap();
    let both = accepting(Cli::command());
    both.clone().debug_assert();
    let both = both.find_subcommand(COMMAND).unwrap();
    let known = |command: &Command| command.get_arguments().count();
    let more = TAKEN.len()
        + UNUSED
            .iter()
            .map(|it| it.values.len() + it.switches.len())
            .sum::<usize>();
    assert_eq!(known(both), known(own) + more);
    let shown = |command: &Command| command.clone().render_long_help().to_string();
    assert_eq!(shown(both), shown(own));
}

#[test]
fn the_page_on_migration_lists_every_flag() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/migrating-openstack.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    let unused = UNUSED
        .iter()
        .flat_map(|it| it.values.iter().chain(it.switches));
    let all = TAKEN.iter().map(|it| &it.name).chain(unused);
    for name in all.filter(|name| name.len() > 1) {
        assert!(
            page.contains(&format!("`--{name}`")),
            "--{name} is not on the page"
        );
    }
}
