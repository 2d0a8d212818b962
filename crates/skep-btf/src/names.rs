//! Types as C writes them, for people to read.

use crate::btf::{Btf, MAX_CHAIN};
use crate::error::Error;
use crate::types::Kind;

impl Btf {
    /// The type in C's notation without qualifiers: `struct prefix4[4]`, `unsigned int *`.
    ///
    /// C writes types inside out, so the declarator grows to both sides while the chain is walked.
    ///
    /// # Errors
    ///
    /// [`Error::TypeMissing`], [`Error::Endless`] and [`Error::Damaged`].
    pub fn type_name(&self, id: u32) -> Result<String, Error> {
        let mut declarator = String::new();
        let mut at = id;
        for _ in 0..MAX_CHAIN {
            let ty = self.ty(at)?;
            match ty.kind {
                Kind::Const | Kind::Volatile | Kind::Restrict | Kind::TypeTag => at = ty.word,
                Kind::Ptr => {
                    declarator.insert(0, '*');
                    at = ty.word;
                }
                Kind::Array => {
                    let Some(array) = ty.array() else { return Err(Error::Unsized { id: at }) };
                    bind(&mut declarator);
                    declarator.push_str(&format!("[{}]", array.count));
                    at = array.element;
                }
                Kind::FuncProto => {
                    bind(&mut declarator);
                    declarator.push_str("()");
                    at = ty.word;
                }
                kind => {
                    let word = match kind {
                        Kind::Struct => "struct ",
                        Kind::Union => "union ",
                        Kind::Fwd if ty.flag => "union ",
                        Kind::Fwd => "struct ",
                        Kind::Enum | Kind::Enum64 => "enum ",
                        _ => "",
                    };
                    let name = match kind {
                        Kind::Void => "void",
                        _ if ty.is_anonymous() => "{...}",
                        _ => ty.name()?,
                    };
                    let space = if declarator.starts_with(['*', '(']) { " " } else { "" };
                    return Ok(format!("{word}{name}{space}{declarator}"));
                }
            }
        }
        Err(Error::Endless { id })
    }
}

/// A pointer to an array is `(*)[4]`, not `*[4]`, which is an array of pointers.
pub(crate) fn bind(declarator: &mut String) {
    if declarator.starts_with('*') {
        *declarator = format!("({declarator})");
    }
}
