//! The identity and the scope: the credentials, and the body of Keystone's `POST /v3/auth/tokens`
//! for each of them.

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

pub use landfall_config::cloud::{Auth, CredentialRef, DomainRef, ProjectRef, Scope, UserRef};

/// The body of `POST /v3/auth/tokens`.
pub(super) fn body(auth: &Auth) -> Value {
    let (identity, scope) = match auth {
        Auth::Password {
            user,
            password,
            scope,
        } => {
            let mut user = user_json(user);
            user["password"] = json!(password.expose_secret());
            let identity = json!({"methods": ["password"], "password": {"user": user}});
            (identity, scope_json(scope))
        }
        Auth::ApplicationCredential { credential, secret } => {
            let mut credential = match credential {
                CredentialRef::Id(id) => json!({"id": id}),
                CredentialRef::Name { name, user } => {
                    json!({"name": name, "user": user_json(user)})
                }
            };
            credential["secret"] = json!(secret.expose_secret());
            let identity = json!({
                "methods": ["application_credential"],
                "application_credential": credential,
            });
            (identity, None)
        }
        Auth::Token { token, scope } => {
            let token = json!({"id": token.expose_secret()});
            let identity = json!({"methods": ["token"], "token": token});
            (identity, scope_json(scope))
        }
    };
    let mut auth = json!({"identity": identity});
    if let Some(scope) = scope {
        auth["scope"] = scope;
    }
    json!({"auth": auth})
}

/// A token that is to be used as it is.
pub(super) fn ready_token(auth: &Auth) -> Option<&SecretString> {
    match auth {
        Auth::Token {
            token,
            scope: Scope::Unscoped,
        } => Some(token),
        Auth::Token { .. } | Auth::Password { .. } | Auth::ApplicationCredential { .. } => None,
    }
}

/// Whether asking again gives a token that lives longer.
pub(super) fn renews(auth: &Auth) -> bool {
    match auth {
        Auth::Password { .. } | Auth::ApplicationCredential { .. } => true,
        Auth::Token { .. } => false,
    }
}

/// What must never be seen.
pub(super) fn secret(auth: &Auth) -> &SecretString {
    match auth {
        Auth::Password { password, .. } => password,
        Auth::ApplicationCredential { secret, .. } => secret,
        Auth::Token { token, .. } => token,
    }
}

fn user_json(user: &UserRef) -> Value {
    match user {
        UserRef::Id(id) => json!({"id": id}),
        UserRef::Name { name, domain } => json!({"name": name, "domain": domain_json(domain)}),
    }
}

fn domain_json(domain: &DomainRef) -> Value {
    match domain {
        DomainRef::Id(id) => json!({"id": id}),
        DomainRef::Name(name) => json!({"name": name}),
    }
}

fn scope_json(scope: &Scope) -> Option<Value> {
    match scope {
        Scope::Unscoped => None,
        Scope::Project(ProjectRef::Id(id)) => Some(json!({"project": {"id": id}})),
        Scope::Project(ProjectRef::Name { name, domain }) => {
            Some(json!({"project": {"name": name, "domain": domain_json(domain)}}))
        }
        Scope::Domain(domain) => Some(json!({"domain": domain_json(domain)})),
        Scope::Trust(id) => Some(json!({"OS-TRUST:trust": {"id": id}})),
    }
}
