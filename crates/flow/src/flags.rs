//! Sets of bits of which each has a name, for the model and for the codec.

/// Sets of bits of which each has a name. Others are kept as they are.
macro_rules! flags {
    ($($(#[$meta:meta])* pub $Name:ident($Number:ty) {
        $($(#[$about:meta])* $CONST:ident = $value:literal $text:literal),* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $Name(pub $Number);

        impl $Name {
            $(#[doc = concat!("`", $text, "`.")] $(#[$about])* pub const $CONST: $Name = $Name($value);)*

            /// Every bit that the standard names.
            pub const ALL: $Name = $Name(0 $(| $value)*);

            /// Whether all bits of `other` are set.
            pub const fn has(self, other: $Name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Both sets together.
            pub const fn with(self, other: $Name) -> $Name {
                $Name(self.0 | other.0)
            }

            /// These flags; none when there is a bit that the standard does not have.
            pub fn known(self) -> Option<$Name> {
                $Name::ALL.has(self).then_some(self)
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut names: Vec<String> = vec![];
                $(if self.0 & $value != 0 { names.push($text.to_owned()); })*
                let rest = self.0 & !Self::ALL.0;
                if rest != 0 || names.is_empty() {
                    names.push(if rest == 0 { "0".to_owned() } else { format!("{rest:#x}") });
                }
                f.write_str(&names.join("|"))
            }
        }
    )*};
}

pub(crate) use flags;
