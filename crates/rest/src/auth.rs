//! How a request proves which account sends it.

use bytes::Bytes;
use http::{HeaderValue, Request};
use secrecy::{ExposeSecret, SecretString};

/// Credentials that are added to each request when it is sent.
pub trait Authorize: Send + Sync {
    /// Adds a token or a signature to a request that is complete otherwise.
    ///
    /// # Errors
    /// Says why that is impossible, without the secret.
    fn authorize(&self, request: &mut Request<Bytes>) -> Result<(), String>;

    /// Returns the secret that is cut out of everything that servers say, if it is sent at all.
    fn secret(&self) -> Option<&SecretString> {
        None
    }
}

/// A token in a header.
#[derive(Clone, Debug)]
pub struct HeaderToken {
    /// The name of the header, in lower case.
    pub header: &'static str,
    /// The token, with a scheme such as `Bearer` where the cloud wants one.
    pub token: SecretString,
}

impl Authorize for HeaderToken {
    fn authorize(&self, request: &mut Request<Bytes>) -> Result<(), String> {
        let mut value = HeaderValue::try_from(self.token.expose_secret())
            .map_err(|_| "the token can't stand in a header".to_owned())?;
        value.set_sensitive(true);
        request.headers_mut().insert(self.header, value);
        Ok(())
    }

    fn secret(&self) -> Option<&SecretString> {
        Some(&self.token)
    }
}
