//! Configuration from outside the manifests: files, flags and environment, turned into values.
//!
//! The parsers are pure: text and environment are handed in. Only for the two kinds of files that
//! refer to each other, `cloud.conf` and `clouds.yaml`, a thin function beside the parser reads
//! them: [`cloud_conf::read`] and [`clouds_yaml::read`].

#![forbid(unsafe_code)]

pub mod access_log;
pub mod cloud;
pub mod cloud_conf;
pub mod clouds_yaml;
pub mod dirs;
pub mod file;
pub mod gcfg;
pub mod instance;
pub mod limits;
pub mod patterns;
pub mod pools;
pub mod provider;
