//! What all commands do with an object: open it, select a program, parse a type.

use crate::failure::Failure;
use crate::target;
use skep::abi::{Native, ProgramType, TYPES};
use skep::{Error, Object, ProgramOptions};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The program of an object that a command is about.
#[derive(clap::Args)]
pub(crate) struct ProgramArgs {
    /// BPF object file; `-` is standard input.
    #[arg(value_name = "OBJ")]
    object: PathBuf,
    /// The program; optional if the object has only one.
    #[arg(value_name = "NAME")]
    prog: Option<String>,
    /// The program's type, instead of the one that its section selects.
    #[arg(long = "type", value_name = "TYPE", value_parser = program_type)]
    program_type: Option<&'static ProgramType>,
    /// Length of the buffer, in bytes, for programs of type raw.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    data_len: u32,
}

impl ProgramArgs {
    pub(crate) fn open(&self) -> Result<Object, Error> {
        open(&self.object)
    }

    /// The path of the object.
    pub(crate) fn path(&self) -> &Path {
        &self.object
    }

    /// The name of the program.
    pub(crate) fn choose(&self, object: &Object) -> Result<String, Failure> {
        choose(object, self.prog.as_deref())
    }

    pub(crate) fn options(&self) -> ProgramOptions {
        ProgramOptions {
            program_type: self.program_type,
            buffer_len: self.data_len,
            ..ProgramOptions::default()
        }
    }
}

/// Reads and parses an object file; `-` is standard input.
pub(crate) fn open(path: &Path) -> Result<Object, Error> {
    let object = Object::parse(&bytes(path)?)?;
    #[cfg(feature = "signatures")]
    let object = object.named(&path.display().to_string());
    Ok(object)
}

/// The bytes of a file; `-` is standard input.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, Error> {
    if !is_stdin(path) {
        return target::read(path);
    }
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map(|_| bytes).map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// Whether the path stands for standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// The named program, or the only one.
pub(crate) fn choose(object: &Object, asked: Option<&str>) -> Result<String, Failure> {
    let programs = object.programs();
    match (asked, programs.as_slice()) {
        (Some(name), names) if names.contains(&name) => Ok(name.to_owned()),
        (Some(name), names) => Err(Failure::Refused(format!(
            "the object has no program {name:?}; its programs: {}",
            names.join(", ")
        ))),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(Failure::Refused("the object has no programs".into())),
        (None, names) => {
            Err(Failure::Usage(format!("the object has several programs; name one of {}", names.join(", "))))
        }
    }
}

/// Parses the name of a program type, for clap.
pub(crate) fn program_type(name: &str) -> Result<&'static ProgramType, String> {
    ProgramType::from_name(name)
        .ok_or_else(|| format!("unknown program type {name:?}; the types are {}", names(|_| true)))
}

/// Parses the name of a program type that the command can run, for clap: on packets, or on a buffer.
pub(crate) fn runnable_type(name: &str) -> Result<&'static ProgramType, String> {
    let runs = |kind: &ProgramType| {
        matches!(kind.native, Some(Native::Xdp | Native::Skb | Native::Netfilter | Native::Buffer))
    };
    match program_type(name)? {
        kind if runs(kind) => Ok(kind),
        kind => Err(format!(
            "programs of type {} {}; types that run here: {}",
            kind.name,
            match kind.native {
                Some(Native::Arguments) => "are functions of a table that a host calls with the library",
                Some(Native::Iterator) => "run on what an iterator shows them, with the library or skep exec",
                Some(_) => "run on a context that a host fills with the library, not on packets or buffers",
                None => "can be verified but not run",
            },
            names(runs)
        )),
    }
}

/// The names of the types that pass the filter, each once.
fn names(holds: impl Fn(&ProgramType) -> bool) -> String {
    let mut names: Vec<&str> = TYPES.iter().filter(|kind| holds(kind)).map(|kind| kind.name).collect();
    names.dedup();
    names.join(", ")
}
