//! Structs of settings with their defaults.

/// Declares structs that are read from a configuration: each field with its default, where it is not the
/// default of its type. A key that is absent has its default, and an unknown key is a problem.
#[macro_export]
macro_rules! settings {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty $(= $default:expr)?,)*
    })*) => {$(
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        $(#[$meta])*
        #[serde(deny_unknown_fields, default)]
        $vis struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $crate::settings!(@default $($default)?),)* }
            }
        }
    )*};
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
}
