//! Numbers whose values have names: codes, and how sets of flags travel.

/// Numbers of which one value has one name. Others are kept as they are.
macro_rules! codes {
    ($($(#[$meta:meta])* pub $Name:ident($Number:ty) { $($CONST:ident = $value:literal $text:literal),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $Name(pub $Number);

        impl $Name {
            $(#[doc = concat!("`", $text, "`.")] pub const $CONST: $Name = $Name($value);)*
        }

        impl $crate::openflow::bytes::Part for $Name {
            fn read(r: &mut $crate::openflow::bytes::Reader<'_>) -> Result<Self, $crate::openflow::fault::Fault> {
                <$Number as $crate::openflow::bytes::Part>::read(r).map($Name)
            }
            fn write(&self, w: &mut $crate::openflow::bytes::Writer) {
                $crate::openflow::bytes::Part::write(&self.0, w);
            }
            fn tree(&self) -> $crate::openflow::tree::Tree {
                $crate::openflow::tree::Tree::Code(u64::from(self.0), self.to_string())
            }
            #[cfg(test)]
            fn sample(s: &mut $crate::openflow::sample::Sampler) -> Self {
                let known = [$($value),*];
                match s.below(known.len() as u64 + 1) as usize {
                    index if index < known.len() => $Name(known[index]),
                    _ => $Name($crate::openflow::bytes::Part::sample(s)),
                }
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.0 {
                    $($value => f.write_str($text),)*
                    other => write!(f, "{other}"),
                }
            }
        }
    )*};
}

/// Sets of flags as they travel: as one number.
macro_rules! flag_sets {
    ($($Name:ty),* $(,)?) => {$(
        impl $crate::openflow::bytes::Part for $Name {
            fn read(r: &mut $crate::openflow::bytes::Reader<'_>) -> Result<Self, $crate::openflow::fault::Fault> {
                $crate::openflow::bytes::Part::read(r).map(Self)
            }
            fn write(&self, w: &mut $crate::openflow::bytes::Writer) {
                $crate::openflow::bytes::Part::write(&self.0, w);
            }
            fn tree(&self) -> $crate::openflow::tree::Tree {
                $crate::openflow::tree::Tree::Code(self.0.into(), self.to_string())
            }
            #[cfg(test)]
            fn sample(s: &mut $crate::openflow::sample::Sampler) -> Self {
                Self($crate::openflow::bytes::Part::sample(s))
            }
        }
    )*};
}

pub(crate) use {codes, flag_sets};
