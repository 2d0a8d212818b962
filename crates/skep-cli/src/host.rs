//! `--host`: the functions that another host provides, from a file of declarations.
//!
//! C is clang's to read: a header is compiled to an object, whose types say what the declarations say.

use crate::failure::Failure;
use skep::function::Prototypes;
use skep::{Object, RuntimeBuilder};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler, unless the environment names another one.
const CLANG: &str = "clang";
/// Makes global variables of the declarations, so that the object has them.
const FLAGS: [&str; 10] =
    ["-target", "bpf", "-g", "-O0", "-Dstatic=", "-Wno-pragma-once-outside-header", "-c", "-o", "-", "-xc"];

#[derive(clap::Args)]
pub(crate) struct HostArgs {
    /// Declarations of functions that the host of the programs provides: a C header (.h or .c, compiled by clang, or by
    /// what the environment variable CLANG names), or an object file that was compiled from one with
    /// clang -target bpf -g -Dstatic= -x c -c.
    #[arg(long, value_name = "FILE")]
    host: Option<PathBuf>,
}

impl HostArgs {
    /// The prototypes in the file; none without one.
    pub(crate) fn read(&self) -> Result<Prototypes, Failure> {
        let Some(path) = &self.host else { return Ok(Prototypes::default()) };
        let source = path.extension().is_some_and(|extension| extension == "h" || extension == "c");
        let object = if source { Object::parse(&compile(path)?) } else { Object::open(path) };
        let read = object.and_then(|object| Prototypes::of_object(&object));
        read.map_err(|error| Failure::Refused(format!("{}: {error}", path.display())))
    }

    /// Adds stubs of these functions, which return `results`.
    pub(crate) fn declare(
        &self,
        builder: RuntimeBuilder,
        results: &[(String, i64)],
    ) -> Result<RuntimeBuilder, Failure> {
        Ok(builder.declare(&self.read()?, results)?)
    }
}

/// Parses `NAME=VALUE`, for clap.
pub(crate) fn result(text: &str) -> Result<(String, i64), String> {
    let wanted = || format!("expected NAME=VALUE, for example lookup=-2, found {text}");
    let (name, value) = text.split_once('=').ok_or_else(wanted)?;
    Ok((name.to_owned(), value.parse().map_err(|_| wanted())?))
}

fn compile(path: &Path) -> Result<Vec<u8>, Failure> {
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| CLANG.into());
    // Debian has <asm/types.h> in a directory of the architecture's.
    let headers = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let run = Command::new(&clang).args(FLAGS).args(["-idirafter", &headers]).arg(path).output();
    let run = run.map_err(|error| {
        let clang = clang.display();
        Failure::Refused(format!(
            "cannot run {clang} to read {}: {error}; name clang in the environment variable CLANG, or give an object \
             file compiled with clang -target bpf -g -Dstatic= -x c -c",
            path.display()
        ))
    })?;
    if run.status.success() {
        return Ok(run.stdout);
    }
    let said = String::from_utf8_lossy(&run.stderr);
    Err(Failure::Refused(format!("{} is not C that clang reads:\n{}", path.display(), said.trim_end())))
}
