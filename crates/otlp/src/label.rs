//! Enums whose variants have a label in attributes, metrics or configuration.

/// Declares an enum with a label for each variant, and generates `ALL` and `as_str`.
#[macro_export]
macro_rules! labelled_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $label:literal,)+ }) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// All variants, in the order of `self as usize`.
            pub const ALL: [$name; [$($label),+].len()] = [$($name::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $label),+
                }
            }
        }
    };
}
