//! Enums whose variants have names.

/// Declares an enum with the name of each variant beside it: `Variant => "name"`. It has `ALL`, its variants in their order,
/// and the method that is named below it, which gives the name.
#[macro_export]
macro_rules! named {
    (
        $(#[$about:meta])*
        $vis:vis enum $enum:ident {
            $($(#[$own:meta])* $variant:ident $(= $number:literal)? => $name:literal),+ $(,)?
        }
        $(#[$of_method:meta])*
        fn $method:ident
    ) => {
        $(#[$about])*
        $vis enum $enum {
            $($(#[$own])* $variant $(= $number)?),+
        }

        impl $enum {
            /// All of them, in their order.
            #[allow(dead_code, reason = "most are not listed")]
            $vis const ALL: [$enum; [$($name),+].len()] = [$($enum::$variant),+];

            $(#[$of_method])*
            $vis const fn $method(self) -> &'static str {
                match self {
                    $($enum::$variant => $name),+
                }
            }
        }
    };
}
