//! Structs of registered metrics.

/// Declares a struct of metrics, each with the expression that registers it in the named registry.
#[macro_export]
macro_rules! registered {
    ($registry:ident => $(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ty = $metric:expr,)*
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$doc])* $field_vis $field: $type,)*
        }

        impl $name {
            pub fn register($registry: &mut ::prometheus_client::registry::Registry) -> $name {
                $name { $($field: $metric,)* }
            }
        }
    };
}
