//! Objects of the host: structures that its BTF describes. Programs reach them through the arguments of their
//! attachment, through helpers and through kfuncs.
//!
//! ```text
//!   attach    which function, tracepoint, hook the program is for: its arguments by number
//!   argument  loads from the context of such a program
//!   fields    loads through an object: what is there, and how far a loaded pointer can be trusted
//!   helper    objects as arguments and results of helpers; per-CPU variables
//!   machine   members of tasks and cgroups of a runtime's machine
//! ```
//!
//! Programs never write to objects. Every load through one is a *probe load*: if the address is invalid, the load gives
//! 0 and the program goes on. So these pointers may dangle, and a pointer loaded from an object may be null without a
//! check.

mod argument;
mod attach;
mod fields;
mod helper;
mod machine;

use crate::domain::value::{Kind, Trust, Value};
use crate::program::prototype::Prototype;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::own::OwnType;
pub(crate) use argument::MAX_ELEMENT;
use attach::Attached;
use fields::Field;
use skep_abi::machine_type_name;
use skep_btf::Btf;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// The host's types, and what was looked up in them so far.
pub(crate) struct Types<'a> {
    btf: Option<&'a Btf>,
    /// What the program is attached to.
    attached: Attached,
    /// The field at an offset of a type, for accesses of a size.
    fields: HashMap<(u32, i32, u32), Field>,
    /// By type: the bytes that the program may write, and whether a store may begin behind the first of them.
    writable: HashMap<u32, Vec<(Range<u32>, bool)>>,
    /// Functions of the host that the program calls.
    pub(crate) kfuncs: HashMap<u32, Rc<Prototype>>,
    /// Types of the program's own, of which it allocates objects.
    pub(crate) own: RefCell<HashMap<u32, Rc<OwnType>>>,
}

impl<'a> Types<'a> {
    pub(crate) fn new(btf: Option<&'a Btf>) -> Self {
        Self {
            btf,
            attached: Attached::default(),
            fields: HashMap::new(),
            writable: HashMap::new(),
            kfuncs: HashMap::new(),
            own: RefCell::default(),
        }
    }
}

impl<'a> Transfer<'a> {
    /// The host's types; `what` needs them.
    pub(crate) fn btf(&self, what: &str) -> Checked<&'a Btf> {
        self.types.btf.ok_or_else(|| {
            let text = format!("{what} needs the types of the host, which were not given");
            Violation::new(Code::Types, text)
                .suggest("give the host's BTF (--btf): /sys/kernel/btf/vmlinux, or an object file")
        })
    }

    /// The structure of that name, which `what` is about.
    pub(crate) fn host_struct(&self, name: &str, what: &str) -> Checked<u32> {
        let btf = self.btf(what)?;
        btf.find(name, skep_btf::Kind::Struct).ok_or_else(|| {
            let text = format!("{what} needs struct {name}, which the given types do not have");
            Violation::new(Code::Types, text).suggest("give the BTF of the target system")
        })
    }

    /// A pointer to a host's object by the name of its type.
    pub(crate) fn host_object(
        &mut self,
        name: &str,
        trust: Trust,
        maybe_null: bool,
        what: &str,
    ) -> Checked<Value> {
        let ty = self.host_struct(name, what)?;
        Ok(self.named(Kind::Object { ty, trust, maybe_null }))
    }

    /// The value as texts show it, with the names of types.
    pub(crate) fn show(&self, value: &Value) -> String {
        match self.types.btf {
            Some(btf) => with_names(btf, HOST, &value.to_string()).into_owned(),
            None => value.to_string(),
        }
    }

    /// A type of the host as C writes it.
    pub(crate) fn type_name(&self, ty: u32) -> String {
        if let Some(name) = machine_type_name(ty) {
            return format!("struct {name}");
        }
        let name = self.types.btf.and_then(|btf| btf.type_name(ty).ok());
        name.unwrap_or_else(|| format!("type {ty}"))
    }
}

/// What stands before the number of a host's type in texts.
pub(crate) const HOST: &str = "_#";
/// The same for a type of the program's own.
pub(crate) const OWN: &str = "_@";

/// Replaces numbers of types by names: `ptr_#211()` becomes `ptr_task_struct()`.
pub(crate) fn with_names<'t>(btf: &Btf, mark: &str, text: &'t str) -> Cow<'t, str> {
    let Some(first) = text.find(mark) else { return Cow::Borrowed(text) };
    let mut named = String::with_capacity(text.len() + 32);
    named.push_str(&text[..first]);
    for part in text[first..].split(mark).skip(1) {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let name = part[..digits].parse().ok().and_then(|ty| {
            let name = btf.name(ty).ok()?;
            Some(if name.is_empty() { btf.type_name(ty).ok()? } else { name.to_owned() })
        });
        match name {
            Some(name) => {
                named.push('_');
                named.push_str(&name);
            }
            None => {
                named.push_str(mark);
                named.push_str(&part[..digits]);
            }
        }
        named.push_str(&part[digits..]);
    }
    Cow::Owned(named)
}
