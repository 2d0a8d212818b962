//! All tests of this crate that need no process of their own, in one binary that is linked once.

mod arenas;
mod callbacks;
#[cfg(feature = "sys")]
mod calls;
mod contacts;
mod contexts;
mod dynptrs;
mod exceptions;
mod extensions;
mod functions;
mod hardening;
#[cfg(feature = "derive")]
mod hosts;
mod hosts_and_maps;
#[allow(dead_code)] // its main function
#[cfg(feature = "derive")]
#[path = "../../examples/http_filter.rs"]
mod http_filter;
mod iterate;
mod iterators;
mod loading;
mod machine;
mod masks;
mod names;
mod network;
mod objects_of_the_host;
mod ops;
mod owners;
mod packets;
mod printing;
mod queues;
mod ring;
mod routes;
mod samples;
mod sleepable;
mod stacks;
mod storages;
mod tasks;
mod timers;
mod told;
mod user_rings;
mod verdicts;
mod work;
