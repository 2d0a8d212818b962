//! Probes that clients define by a line of text: `kprobe_events` and `uprobe_events` of Linux's tracefs.
//!
//! ```text
//!   p[:[GROUP/]NAME] SYMBOL[+OFFSET]        the start of a function, or a place in it
//!   r[MAXACTIVE][:[GROUP/]NAME] SYMBOL      its return
//!   p[:[GROUP/]NAME] PATH:OFFSET[(COUNTER)] a place in a binary; with r the return from there
//!   -:[GROUP/]NAME                          no longer
//! ```
//!
//! Each is a tracepoint from then on, with a directory of its own. Arguments that shall be fetched are not: programs
//! read registers.

use super::Probes;
use super::folder::Folder;
use crate::process::Process;
use crate::procfs;
use crate::table::{FileId, id_of};
use rustix::fd::OwnedFd;
use skep::sys::ProbeRequest;
use skep_sys::Errno;
use std::path::PathBuf;
use std::sync::Arc;

/// The number of the first one: far behind the tracepoints of the world.
const FIRST: u64 = 100_000;
/// The longest names.
const NAME: usize = 63;
/// Which file has definitions of places in binaries.
const UPROBES: usize = 1;

/// What is defined.
pub(super) struct Events {
    directory: Folder,
    next: u64,
    defined: Vec<Defined>,
    /// What processes have open for writing: nothing can be written to these themselves.
    files: [Option<(OwnedFd, FileId)>; 2],
    tracepoints: u32,
}

struct Defined {
    which: usize,
    id: u64,
    group: String,
    name: String,
    /// The line without `p:` and names.
    place: String,
    returns: bool,
    request: ProbeRequest,
    /// Each descriptor of it holds a reference.
    open: Arc<()>,
}

impl Events {
    pub(super) fn new(directory: Folder, tracepoints: u32) -> Self {
        Self { directory, next: FIRST, defined: Vec::new(), files: [None, None], tracepoints }
    }

    /// The file that a process gets to write to.
    pub(super) fn file(&mut self, which: usize) -> Result<OwnedFd, Errno> {
        if self.files[which].is_none() {
            let file = procfs::written("probe_events", b"")?;
            let id = id_of(&file)?;
            self.files[which] = Some((file, id));
        }
        let (file, _) = self.files[which].as_ref().ok_or(Errno::EIO)?;
        file.try_clone().or(Err(Errno::EMFILE))
    }

    /// Which of the two files it is.
    pub(super) fn which(&self, file: FileId) -> Option<usize> {
        self.files.iter().position(|known| known.as_ref().is_some_and(|(_, id)| *id == file))
    }

    /// All definitions, as they are read.
    pub(super) fn definitions(&self, which: usize) -> String {
        let own = self.defined.iter().filter(|defined| defined.which == which);
        let line = |defined: &Defined| {
            let kind = if defined.returns { 'r' } else { 'p' };
            format!("{kind}:{}/{} {}\n", defined.group, defined.name, defined.place)
        };
        own.map(line).collect()
    }

    /// What the tracepoint of that number is.
    pub(super) fn request(&self, id: u64) -> Option<(ProbeRequest, Arc<()>)> {
        let defined = self.defined.iter().find(|defined| defined.id == id);
        let of_world = || {
            let first = u64::from(skep::world::FIRST_TRACEPOINT);
            let id = u32::try_from(id).ok()?;
            let known = (first..first + u64::from(self.tracepoints)).contains(&id.into());
            known.then(|| (ProbeRequest::Tracepoint(id), Arc::new(())))
        };
        defined.map(|defined| (defined.request.clone(), Arc::clone(&defined.open))).or_else(of_world)
    }

    /// Removes all definitions.
    pub(super) fn clear(&mut self, which: usize) -> Result<(), Errno> {
        if self.defined.iter().any(|defined| defined.which == which && Arc::strong_count(&defined.open) > 1) {
            return Err(Errno::EBUSY);
        }
        while let Some(at) = self.defined.iter().position(|defined| defined.which == which) {
            self.remove(at);
        }
        Ok(())
    }

    /// Does what lines of text say.
    pub(super) fn define(
        &mut self,
        process: &mut Process<'_>,
        probes: &Probes,
        which: usize,
        text: &[u8],
    ) -> Result<(), Errno> {
        let text = std::str::from_utf8(text).or(Err(Errno::EINVAL))?;
        for line in text.split(['\n', '\0']).map(str::trim) {
            if !line.is_empty() && !line.starts_with('#') {
                self.line(process, probes, which, line)?;
            }
        }
        Ok(())
    }

    fn line(
        &mut self,
        process: &mut Process<'_>,
        probes: &Probes,
        which: usize,
        line: &str,
    ) -> Result<(), Errno> {
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (kind, named) =
            command.split_once(':').map_or((command, None), |(kind, name)| (kind, Some(name)));
        if kind == "-" {
            let (group, name) = split(named.ok_or(Errno::EINVAL)?);
            let same = |defined: &Defined| {
                defined.which == which && defined.name == name && group.is_none_or(|own| defined.group == own)
            };
            let at = self.defined.iter().position(same).ok_or(Errno::ENOENT)?;
            if Arc::strong_count(&self.defined[at].open) > 1 {
                return Err(Errno::EBUSY);
            }
            self.remove(at);
            return Ok(());
        }
        let returns = match kind.split_at_checked(1).ok_or(Errno::EINVAL)? {
            ("p", "") => false,
            ("r", most) if most.is_empty() || (which != UPROBES && most.parse::<u32>().is_ok()) => true,
            _ => return Err(Errno::EINVAL),
        };
        let place = rest.split_whitespace().next().ok_or(Errno::EINVAL)?;
        let (request, symbol) = match which {
            UPROBES => binary(process, probes, place, returns)?,
            _ => function(place, returns)?,
        };
        let (group, name) = named.map_or((None, ""), split);
        let group = group.unwrap_or(if which == UPROBES { "uprobes" } else { "kprobes" }).to_owned();
        let name = match name {
            "" => format!("{}_{symbol}_0", if returns { 'r' } else { 'p' }),
            name => name.to_owned(),
        };
        let word = |text: &str| {
            let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
            text.len() <= NAME && text.chars().all(rest) && text.starts_with(|c: char| !c.is_ascii_digit())
        };
        if !word(&group) || !word(&name) {
            return Err(Errno::EINVAL);
        }
        // It is known before it can be opened.
        let opened = process.engine.open_probe(request.clone(), None, false);
        opened.map_err(|error| if error == Errno::ENOENT { error } else { Errno::EINVAL })?;
        let id = self.next;
        let text = format!("name: {name}\nID: {id}\nformat:\n");
        let files = [("format", &*text), ("id", &*format!("{id}\n"))];
        self.directory.add((&group, &name), &files)?;
        self.next += 1;
        let place = place.to_owned();
        self.defined.push(Defined { which, id, group, name, place, returns, request, open: Arc::new(()) });
        Ok(())
    }

    fn remove(&mut self, at: usize) {
        let gone = self.defined.remove(at);
        self.directory.remove((&gone.group, &gone.name), &["format", "id"]);
    }
}

/// A name with its group.
fn split(name: &str) -> (Option<&str>, &str) {
    name.split_once(['/', '.']).map_or((None, name), |(group, name)| (Some(group), name))
}

fn offset(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

fn function(place: &str, returns: bool) -> Result<(ProbeRequest, String), Errno> {
    // The name of a module before it says nothing here.
    let place = place.rsplit(':').next().unwrap_or(place);
    if let Some(address) = place.strip_prefix("0x") {
        let offset = u64::from_str_radix(address, 16).or(Err(Errno::EINVAL))?;
        return Ok((ProbeRequest::Function { name: None, offset, returns }, format!("0x{address}")));
    }
    let (name, offset) = match place.split_once('+') {
        Some((name, text)) => (name, offset(text).ok_or(Errno::EINVAL)?),
        None => (place, 0),
    };
    let (name, symbol) = (Some(name.to_owned()), name.replace('.', "_"));
    Ok((ProbeRequest::Function { name, offset, returns }, symbol))
}

fn binary(
    process: &mut Process<'_>,
    probes: &Probes,
    place: &str,
    returns: bool,
) -> Result<(ProbeRequest, String), Errno> {
    let (given, place) = place.rsplit_once(':').ok_or(Errno::EINVAL)?;
    let place = place.split_once('(').map_or(place, |(place, _)| place);
    let offset = offset(place).ok_or(Errno::EINVAL)?;
    let path = named(process, probes, given.as_bytes())?;
    let stem = given.rsplit('/').next().unwrap_or(given).replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    Ok((ProbeRequest::Binary { path, given: given.to_owned(), offset, returns }, stem))
}

/// The world's name for a binary that a client names.
pub(crate) fn named(process: &mut Process<'_>, probes: &Probes, given: &[u8]) -> Result<PathBuf, Errno> {
    let file = process.ordinary_file(given)?;
    match probes.binary(file) {
        Some(path) => Ok(path.to_owned()),
        None => {
            let name = String::from_utf8_lossy(given).into_owned();
            process.engine.note_lack("probes of a binary that the world does not name", name);
            Err(Errno::EOPNOTSUPP)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_functions_are_read() {
        let of = |place| {
            function(place, false).map(|(request, symbol)| match request {
                ProbeRequest::Function { name, offset, .. } => (name.unwrap_or_default(), offset, symbol),
                _ => panic!(),
            })
        };
        assert_eq!(of("vprintk"), Ok(("vprintk".to_owned(), 0, "vprintk".to_owned())));
        assert_eq!(of("m:a.b+0x10"), Ok(("a.b".to_owned(), 16, "a_b".to_owned())));
        assert_eq!(of("0xff"), Ok((String::new(), 255, "0xff".to_owned())));
        assert_eq!(of("a+x"), Err(Errno::EINVAL));
    }

    #[test]
    fn names_may_have_a_group() {
        assert_eq!(split("group/name"), (Some("group"), "name"));
        assert_eq!(split("name"), (None, "name"));
    }
}
