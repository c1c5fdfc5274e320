//! Who asks, and for what: the credentials, and the body of Keystone's `POST /v3/auth/tokens` for each of them.

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

/// Credentials of the cloud. `Debug` shows names, never a secret.
#[derive(Clone, Debug)]
pub enum Auth {
    /// A user and a password.
    Password {
        /// The user.
        user: User,
        /// The password.
        password: SecretString,
        /// What the token is for.
        scope: Scope,
    },
    /// An application credential. It belongs to one project, so that no scope is sent.
    ApplicationCredential {
        /// Which one.
        credential: Credential,
        /// Its secret.
        secret: SecretString,
    },
    /// A token that somebody else got. Without a scope it is used as it is; it can't outlive its time.
    Token {
        /// The token.
        token: SecretString,
        /// What the new token is for.
        scope: Scope,
    },
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// By id.
    Id(String),
    /// By name in a domain.
    Name {
        /// The name.
        name: String,
        /// The domain that the name is from.
        domain: Domain,
    },
}

/// A domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// By id.
    Id(String),
    /// By name.
    Name(String),
}

/// A project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Project {
    /// By id.
    Id(String),
    /// By name in a domain.
    Name {
        /// The name.
        name: String,
        /// The domain that the name is from.
        domain: Domain,
    },
}

/// An application credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By id.
    Id(String),
    /// By the name that its user gave it.
    Name {
        /// The name.
        name: String,
        /// Its user.
        user: User,
    },
}

/// What a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Whatever the user's default is.
    Unscoped,
    /// A project.
    Project(Project),
    /// A domain.
    Domain(Domain),
    /// A trust, by id.
    Trust(String),
}

// === impl Auth ===

impl Auth {
    /// The body of `POST /v3/auth/tokens`.
    pub(super) fn body(&self) -> Value {
        let (identity, scope) = match self {
            Self::Password {
                user,
                password,
                scope,
            } => {
                let mut user = user.json();
                user["password"] = json!(password.expose_secret());
                let identity = json!({"methods": ["password"], "password": {"user": user}});
                (identity, scope.json())
            }
            Self::ApplicationCredential { credential, secret } => {
                let mut credential = credential.json();
                credential["secret"] = json!(secret.expose_secret());
                let identity = json!({
                    "methods": ["application_credential"],
                    "application_credential": credential,
                });
                (identity, None)
            }
            Self::Token { token, scope } => {
                let token = json!({"id": token.expose_secret()});
                (json!({"methods": ["token"], "token": token}), scope.json())
            }
        };
        let mut auth = json!({"identity": identity});
        if let Some(scope) = scope {
            auth["scope"] = scope;
        }
        json!({"auth": auth})
    }

    /// A token that is to be used as it is.
    pub(super) fn ready_token(&self) -> Option<&SecretString> {
        match self {
            Self::Token {
                token,
                scope: Scope::Unscoped,
            } => Some(token),
            Self::Token { .. } | Self::Password { .. } | Self::ApplicationCredential { .. } => None,
        }
    }

    /// Whether asking again gives a token that lives longer.
    pub(super) fn renews(&self) -> bool {
        match self {
            Self::Password { .. } | Self::ApplicationCredential { .. } => true,
            Self::Token { .. } => false,
        }
    }

    /// What must never be seen.
    pub(super) fn secret(&self) -> &SecretString {
        match self {
            Self::Password { password, .. } => password,
            Self::ApplicationCredential { secret, .. } => secret,
            Self::Token { token, .. } => token,
        }
    }
}

impl User {
    fn json(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Name { name, domain } => json!({"name": name, "domain": domain.json()}),
        }
    }
}

impl Domain {
    fn json(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Name(name) => json!({"name": name}),
        }
    }
}

impl Credential {
    fn json(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Name { name, user } => json!({"name": name, "user": user.json()}),
        }
    }
}

impl Scope {
    fn json(&self) -> Option<Value> {
        match self {
            Self::Unscoped => None,
            Self::Project(Project::Id(id)) => Some(json!({"project": {"id": id}})),
            Self::Project(Project::Name { name, domain }) => {
                Some(json!({"project": {"name": name, "domain": domain.json()}}))
            }
            Self::Domain(domain) => Some(json!({"domain": domain.json()})),
            Self::Trust(id) => Some(json!({"OS-TRUST:trust": {"id": id}})),
        }
    }
}
