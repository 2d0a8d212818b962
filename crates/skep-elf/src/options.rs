//! What the caller tells the loader about the target system.

use std::fmt;

use skep_btf::Btf;

/// What the programs of an object are linked with.
#[derive(Clone, Copy, Default)]
pub struct LinkOptions<'a> {
    /// The types of the system that programs are for: CO-RE relocations take offsets from them, and kernel functions
    /// and variables are looked up there. Without them instructions stay as the compiler wrote them, for
    /// the structures that the object was compiled with, and kernel functions and variables are not found.
    pub target: Option<&'a Btf>,
    /// Addresses of kernel symbols without types. Without this, each such symbol gets a made-up address.
    pub addresses: Option<&'a Addresses<'a>>,
    /// Numbers of the host's own functions, by name. They take precedence over functions of the kernel.
    pub functions: Option<&'a Functions<'a>>,
}

/// Says which number the function of a name has.
pub type Functions<'a> = dyn Fn(&str) -> Option<u32> + 'a;

/// Says at which address the kernel symbol of a name is.
pub type Addresses<'a> = dyn Fn(&str) -> Option<u64> + 'a;

impl fmt::Debug for LinkOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkOptions")
            .field("target", &self.target)
            .field("addresses", &self.addresses.is_some())
            .field("functions", &self.functions.is_some())
            .finish()
    }
}
