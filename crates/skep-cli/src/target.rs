//! The kernel or host that a verified object is for: its types, configuration and release.

use skep::{Btf, Error, Object};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Path of the running kernel's types.
const SYSTEM: &str = "/sys/kernel/btf/vmlinux";
/// Path of the running kernel's release.
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// The default release: the one against which the tables of program types and helpers were compared.
const DEFAULT_RELEASE: &str = "6.12.0";

/// Parses the value of `--kernel`: a release as `uname -r` prints it.
pub(crate) fn release(text: &str) -> Result<String, String> {
    let numbers = text.split(['-', '+', '~']).next().unwrap_or_default();
    let mut parts = numbers.split('.').map(|part| part.parse::<u16>().is_ok());
    if parts.next() == Some(true) && parts.next() == Some(true) && parts.all(|is_number| is_number) {
        Ok(text.to_owned())
    } else {
        Err("expected a release such as 6.12.0 or 6.12-rc1".to_owned())
    }
}

/// Passes the target's description to the object. Missing parts that are needed come from the running system.
pub(crate) fn set(
    object: &mut Object,
    btf: &[PathBuf],
    kconfig: Option<&Path>,
    kernel: Option<&str>,
) -> Result<(), Error> {
    let mut release = kernel.map(str::to_owned);
    match btf {
        [kernel, modules @ ..] => object.set_host_types(joined(kernel, modules)?),
        [] if object.refers_to_host() && Path::new(SYSTEM).exists() => {
            object.set_host_types(Arc::new(types(Path::new(SYSTEM))?));
            release = release.or_else(|| Some(std::fs::read_to_string(RELEASE).ok()?.trim().to_owned()));
        }
        [] => {}
    }
    let text = kconfig.map(read).transpose()?;
    // The heading of a configuration has its release.
    if release.is_none() && text.is_none() {
        release = Some(DEFAULT_RELEASE.to_owned());
    }
    object.set_config(&String::from_utf8_lossy(&text.unwrap_or_default()), release.as_deref())
}

/// Reads the types in a file.
pub(crate) fn types(path: &Path) -> Result<Btf, Error> {
    Btf::parse(read(path)?).map_err(|source| Error::Types { path: path.to_owned(), source })
}

/// The types of a kernel with those of its modules.
pub(crate) fn joined(kernel: &Path, modules: &[PathBuf]) -> Result<Arc<Btf>, Error> {
    let base = Arc::new(types(kernel)?);
    let mut parsed = Vec::with_capacity(modules.len());
    for path in modules {
        let module = Btf::parse_split(read(path)?, Arc::clone(&base));
        parsed.push(module.map_err(|source| Error::Types { path: path.clone(), source })?);
    }
    if parsed.is_empty() {
        return Ok(base);
    }
    let all = base.join(&parsed).map_err(|source| {
        let alone = |module: &Btf| base.join(std::slice::from_ref(module)).is_err();
        let culprit = parsed.iter().position(alone).map_or(kernel, |at| &modules[at]);
        Error::Types { path: culprit.to_owned(), source }
    })?;
    Ok(Arc::new(all))
}

/// Reads a text.
pub(crate) fn text(path: &Path) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&read(path)?).into_owned())
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}
