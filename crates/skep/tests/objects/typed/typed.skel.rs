// Made by `skep gen skeleton --rust typed.bpf.o`: do not edit.

/// Programs, maps and variables of `typed.bpf.o`.
#[allow(dead_code, clippy::all, missing_docs, unreachable_pub)]
#[rustfmt::skip]
pub mod typed {
    use ::zerocopy::{FromBytes, Immutable, IntoBytes};

    /// The object file.
    pub const OBJECT: &[u8] = include_bytes!("typed.bpf.o");

    /// `struct direction`, 16 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    pub struct Direction {
        pub packets: u64,
        pub bytes: u64,
    }

    const _: () = assert!(size_of::<Direction>() == 16);

    /// `struct flow_key`, 8 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    pub struct FlowKey {
        pub source: u32,
        pub port: u16,
        pub protocol: u8,
        pub local: u8,
    }

    const _: () = assert!(size_of::<FlowKey>() == 8);

    /// `struct flow`, 56 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    pub struct Flow {
        pub directions: [Direction; 2],
        pub state: u32,
        pub score: i32,
        pub name: [u8; 8],
        pub ttl: u8,
        pub bits_49: [u8; 7],
    }

    const _: () = assert!(size_of::<Flow>() == 56);

    /// `struct prefix`, 8 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    pub struct Prefix {
        pub bits: u32,
        pub address: [u8; 4],
    }

    const _: () = assert!(size_of::<Prefix>() == 8);

    /// `struct event`, 8 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    pub struct Event {
        pub number: u32,
        pub length: u32,
    }

    const _: () = assert!(size_of::<Event>() == 8);

    /// `struct settings`, 16 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    pub struct Settings {
        pub rate: u64,
        pub burst: u32,
        pub enabled: u8,
        pub padding_13: [u8; 3],
    }

    const _: () = assert!(size_of::<Settings>() == 16);

    /// `enum state`: any number is possible, since programs write it.
    pub mod state {
        pub const STATE_NEW: u32 = 0;
        pub const STATE_OPEN: u32 = 1;
        pub const STATE_CLOSED: u32 = 7;
    }

    /// A loaded object.
    #[derive(Clone, Debug)]
    pub struct Skeleton {
        pub module: ::skep::Module,
        pub maps: Maps,
        pub programs: Programs,
    }

    #[derive(Clone, Debug)]
    pub struct Maps {
        pub totals: ::skep::PerCpuMap<u32, Direction>,
        pub flows: ::skep::TypedMap<FlowKey, Flow>,
        pub events: ::std::sync::Arc<::skep::Map>,
        pub routes: ::skep::TypedMap<Prefix, u32>,
        pub jobs: ::skep::TypedQueue<Event>,
    }

    #[derive(Clone, Debug)]
    pub struct Programs {
        pub count: ::skep::Program,
        pub quiet: ::skep::Program,
        pub spin: ::skep::Program,
    }

    /// Parses the object file.
    pub fn object() -> Result<::skep::Object, ::skep::Error> {
        ::skep::Object::parse(OBJECT)
    }

    impl Skeleton {
        /// Loads all programs.
        pub fn load(runtime: &::skep::Runtime) -> Result<Self, ::skep::Error> {
            Self::of(runtime.load(&object()?)?)
        }

        /// Of a load of this object with all its programs, whose types are compared with these.
        pub fn of(module: ::skep::Module) -> Result<Self, ::skep::Error> {
            module.check_value("totals", &::skep::fields!(Direction { packets, bytes }))?;
            module.check_key("flows", &::skep::fields!(FlowKey { source, port, protocol, local }))?;
            module.check_value("flows", &::skep::fields!(Flow { directions, state, score, name, ttl }))?;
            module.check_key("routes", &::skep::fields!(Prefix { bits, address }))?;
            module.check_value("jobs", &::skep::fields!(Event { number, length }))?;
            if module.variables().iter().any(|known| known.name == "settings") {
                module.check_variable("settings", &::skep::fields!(Settings { rate, burst, enabled }))?;
            }
            let missing = |what: &'static str, name: &str| ::skep::Error::Unknown {
                what, name: name.to_owned(), known: Vec::new(),
            };
            let maps = Maps {
                totals: module.per_cpu_map("totals")?,
                flows: module.typed_map("flows")?,
                events: module.map("events").cloned().ok_or_else(|| missing("map", "events"))?,
                routes: module.typed_map("routes")?,
                jobs: module.queue("jobs")?,
            };
            let programs = Programs {
                count: module.program("count").cloned().ok_or_else(|| missing("program", "count"))?,
                quiet: module.program("quiet").cloned().ok_or_else(|| missing("program", "quiet"))?,
                spin: module.program("spin").cloned().ok_or_else(|| missing("program", "spin"))?,
            };
            let _ = missing;
            Ok(Self { module, maps, programs })
        }

        /// The variable `scale`.
        pub fn scale(&self) -> Result<u32, ::skep::Error> {
            self.module.get("scale")
        }

        /// The variable `balance`.
        pub fn balance(&self) -> Result<i64, ::skep::Error> {
            self.module.get("balance")
        }

        /// Sets the variable `balance`.
        pub fn set_balance(&self, value: i64) -> Result<(), ::skep::Error> {
            self.module.set("balance", value)
        }

        /// The variable `settings`.
        pub fn settings(&self) -> Result<Settings, ::skep::Error> {
            self.module.get("settings")
        }

        /// Sets the variable `settings`.
        pub fn set_settings(&self, value: Settings) -> Result<(), ::skep::Error> {
            self.module.set("settings", value)
        }

        /// The variable `seen`.
        pub fn seen(&self) -> Result<u64, ::skep::Error> {
            self.module.get("seen")
        }

        /// Sets the variable `seen`.
        pub fn set_seen(&self, value: u64) -> Result<(), ::skep::Error> {
            self.module.set("seen", value)
        }

        /// The variable `limit`.
        pub fn limit(&self) -> Result<u32, ::skep::Error> {
            self.module.get("limit")
        }

        /// Sets the variable `limit`.
        pub fn set_limit(&self, value: u32) -> Result<(), ::skep::Error> {
            self.module.set("limit", value)
        }
    }

    /// Variables before the load: `before_load::{name}(linker, value)`.
    pub mod before_load {
        #[allow(unused_imports)]
        use super::*;

        pub fn scale<'a>(linker: ::skep::Linker<'a>, value: u32) -> ::skep::Linker<'a> {
            linker.set("scale", value)
        }

        pub fn balance<'a>(linker: ::skep::Linker<'a>, value: i64) -> ::skep::Linker<'a> {
            linker.set("balance", value)
        }

        pub fn settings<'a>(linker: ::skep::Linker<'a>, value: Settings) -> ::skep::Linker<'a> {
            linker.set("settings", value)
        }

        pub fn seen<'a>(linker: ::skep::Linker<'a>, value: u64) -> ::skep::Linker<'a> {
            linker.set("seen", value)
        }

        pub fn limit<'a>(linker: ::skep::Linker<'a>, value: u32) -> ::skep::Linker<'a> {
            linker.set("limit", value)
        }
    }
}
