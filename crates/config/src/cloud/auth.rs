//! The identity at Keystone and its scope: one way to authenticate out of the many keys.

use secrecy::SecretString;

use super::error::ConfError;
use super::global::Global;

/// How to authenticate (Keystone API, version 3).
#[derive(Clone, Debug)]
pub enum Auth {
    /// With the password of a user.
    Password {
        /// The identity.
        user: UserRef,
        /// The password.
        password: SecretString,
        /// For what.
        scope: Scope,
    },
    /// With an application credential. It carries its own scope.
    ApplicationCredential {
        /// Which one.
        credential: CredentialRef,
        /// Its secret.
        secret: SecretString,
    },
    /// With a token from elsewhere.
    Token {
        /// The token.
        token: SecretString,
        /// For what.
        scope: Scope,
    },
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserRef {
    /// By id.
    Id(String),
    /// By name.
    Name {
        /// The name.
        name: String,
        /// The domain in which it is unique.
        domain: DomainRef,
    },
}

/// An application credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialRef {
    /// By id.
    Id(String),
    /// By name.
    Name {
        /// The name.
        name: String,
        /// The user within whose domain it is unique.
        user: UserRef,
    },
}

/// A domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainRef {
    /// By id.
    Id(String),
    /// By name.
    Name(String),
}

/// A project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectRef {
    /// By id.
    Id(String),
    /// By name.
    Name {
        /// The name.
        name: String,
        /// The domain in which it is unique.
        domain: DomainRef,
    },
}

/// What a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A project.
    Project(ProjectRef),
    /// A domain.
    Domain(DomainRef),
    /// What a trust, by id, allows.
    Trust(String),
    /// The user's default project, if there is one.
    Unscoped,
}

impl Global {
    /// The way to authenticate that the keys describe.
    ///
    /// A trust comes first, with the password of trustee or user. Else a token beats an application
    /// credential, which beats a password. Ids beat names; where a domain is needed and not given,
    /// it is `domain-id` or `domain-name`.
    pub fn auth(&self) -> Result<Auth, ConfError> {
        if let Some(trust) = &self.trust_id {
            return self.by_trust(trust);
        }
        if let Some(token) = &self.token {
            return Ok(Auth::Token {
                token: token.clone(),
                scope: self.scope()?,
            });
        }
        if self.application_credential_id.is_some() || self.application_credential_name.is_some() {
            return self.by_credential();
        }
        let Some(password) = &self.password else {
            return Err(self.without_secret());
        };
        Ok(Auth::Password {
            user: self.user()?,
            password: password.clone(),
            scope: self.scope()?,
        })
    }

    fn by_trust(&self, trust: &str) -> Result<Auth, ConfError> {
        let scope = Scope::Trust(trust.to_owned());
        if let Some(password) = self.trustee_password.as_ref().or(self.password.as_ref()) {
            let user = match &self.trustee_id {
                Some(id) => UserRef::Id(id.clone()),
                None => self.user()?,
            };
            return Ok(Auth::Password {
                user,
                password: password.clone(),
                scope,
            });
        }
        if let Some(token) = &self.token {
            return Ok(Auth::Token {
                token: token.clone(),
                scope,
            });
        }
        let why = "a trust needs the password of the trustee; an application credential can't be \
                  used with it";
        Err(self.incomplete(&["trust-id", "trustee-password", "password"], why))
    }

    fn by_credential(&self) -> Result<Auth, ConfError> {
        let Some(secret) = &self.application_credential_secret else {
            let keys = [
                "application-credential-id",
                "application-credential-name",
                "application-credential-secret",
            ];
            return Err(self.incomplete(&keys, "an application credential needs its secret"));
        };
        let credential = match (
            &self.application_credential_id,
            &self.application_credential_name,
        ) {
            (Some(id), _) => CredentialRef::Id(id.clone()),
            (None, name) => CredentialRef::Name {
                name: name.clone().unwrap_or_default(),
                user: self.user()?,
            },
        };
        Ok(Auth::ApplicationCredential {
            credential,
            secret: secret.clone(),
        })
    }

    fn without_secret(&self) -> ConfError {
        if self.application_credential_secret.is_some() {
            let keys = ["application-credential-secret", "application-credential-id"];
            let why = "a secret without the application credential that it belongs to; give its id";
            return self.incomplete(&keys, why);
        }
        let keys = [
            "username",
            "user-id",
            "password",
            "application-credential-secret",
            "token",
        ];
        let why = "no credentials; give a user and password, an application credential, or a token";
        self.incomplete(&keys, why)
    }

    fn user(&self) -> Result<UserRef, ConfError> {
        if let Some(id) = &self.user_id {
            return Ok(UserRef::Id(id.clone()));
        }
        let Some(name) = &self.username else {
            return Err(self.incomplete(
                &["user-id", "username"],
                "the user is missing; give one of them",
            ));
        };
        let domain = self.domain(self.user_domain_id.as_ref(), self.user_domain_name.as_ref());
        let domain = domain.ok_or_else(|| {
            let keys = [
                "username",
                "user-domain-id",
                "user-domain-name",
                "domain-id",
                "domain-name",
            ];
            self.incomplete(
                &keys,
                "a user's name is unique only in a domain; give one, or user-id",
            )
        })?;
        Ok(UserRef::Name {
            name: name.clone(),
            domain,
        })
    }

    fn scope(&self) -> Result<Scope, ConfError> {
        if let Some(id) = &self.tenant_id {
            return Ok(Scope::Project(ProjectRef::Id(id.clone())));
        }
        if let Some(name) = &self.tenant_name {
            let domain = self.domain(
                self.tenant_domain_id.as_ref(),
                self.tenant_domain_name.as_ref(),
            );
            let domain = domain.ok_or_else(|| {
                let keys = [
                    "tenant-name",
                    "tenant-domain-id",
                    "tenant-domain-name",
                    "domain-id",
                    "domain-name",
                ];
                self.incomplete(
                    &keys,
                    "a project's name is unique only in a domain; give one, or the project's id",
                )
            })?;
            return Ok(Scope::Project(ProjectRef::Name {
                name: name.clone(),
                domain,
            }));
        }
        Ok(match (&self.domain_id, &self.domain_name) {
            (Some(id), _) => Scope::Domain(DomainRef::Id(id.clone())),
            (None, Some(name)) => Scope::Domain(DomainRef::Name(name.clone())),
            (None, None) => Scope::Unscoped,
        })
    }

    /// The domain by these keys, else by those that hold for everything.
    fn domain(&self, id: Option<&String>, name: Option<&String>) -> Option<DomainRef> {
        let by_id = |id: Option<&String>| id.cloned().map(DomainRef::Id);
        let by_name = |name: Option<&String>| name.cloned().map(DomainRef::Name);
        by_id(id)
            .or_else(|| by_name(name))
            .or_else(|| by_id(self.domain_id.as_ref()))
            .or_else(|| by_name(self.domain_name.as_ref()))
            .or_else(|| by_id(self.default_domain.as_ref()))
    }
}
