//! Sessions of OpenStack: a project's token from Keystone, with the catalog that came with it.

use std::sync::Arc;

use landfall_rest::{Api, ApiError, Exchange, Query, Session, Sessions, Url};
use serde_json::{Map, Value};

use super::catalog::Service;
use super::credentials::Credentials;
use super::identity::{Identity, Token};

/// The API of OpenStack: services from a catalog, with tokens of Keystone.
pub(super) struct OpenStackApi {
    identity: Identity,
    sessions: Sessions<Token>,
}

// === impl OpenStackApi ===

impl OpenStackApi {
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            sessions: Sessions::default(),
        }
    }

    pub fn credentials(&self) -> &Credentials {
        self.identity.credentials()
    }
}

impl Api for OpenStackApi {
    type Session = Session<Token>;
    type Service = Service;

    async fn session(
        &self,
        exchange: &Exchange,
        refused: Option<&Session<Token>>,
    ) -> Result<Arc<Session<Token>>, ApiError> {
        let credentials = self.identity.credentials();
        if let Some(_turn) = credentials.turn(refused.is_some()).await
            && credentials.read(exchange).await
        {
            let grant = || self.identity.grant_next(exchange);
            // What is wrong with them is a problem of the credentials, and noted there.
            let _ = self.sessions.replace(grant).await;
        }
        let grant = || self.identity.grant(exchange);
        self.sessions.session(refused, grant).await
    }

    fn base<'s>(&'s self, token: &'s Session<Token>, service: Service) -> Result<&'s Url, String> {
        let endpoints = &token.endpoints;
        let base = match service {
            Service::LoadBalancer => &endpoints.load_balancer,
            Service::Network => &endpoints.network,
            Service::KeyManager => (endpoints.key_manager.as_ref())
                .ok_or_else(|| "the catalog has no key-manager".to_owned())?,
        };
        Ok(&base.api)
    }

    /// Follows the query of the link alone, at the address that is known. Behind a proxy, services
    /// write links with a scheme, a host and a port of their own; another host must not get the
    /// token. Octavia's links lack the filters of the list (its pagination repeats `limit`, `sort`
    /// and `marker` only), so they are added again.
    fn next_page(
        &self,
        collection: &str,
        envelope: &Map<String, Value>,
        page: &Url,
        query: Query<'_>,
    ) -> Result<Option<Url>, String> {
        let links = envelope.get(&format!("{collection}_links"));
        let mut links = links.and_then(Value::as_array).into_iter().flatten();
        let next = links.find(|link| link["rel"] == "next");
        // Barbican writes the address alone.
        let alone = envelope.get("next").and_then(Value::as_str);
        let href = match (next, alone) {
            (Some(next), _) => next["href"].as_str().unwrap_or_default(),
            (None, Some(href)) => href,
            (None, None) => return Ok(None),
        };
        let (_, link_query) = href
            .split_once('?')
            .ok_or_else(|| format!("the link to the next page is invalid: {href:?}"))?;
        let mut next = page.clone();
        next.set_query(link_query.split('#').next());
        for (key, value) in query {
            if !next.query_pairs().any(|(known, _)| known == *key) {
                next.query_pairs_mut().append_pair(key, value);
            }
        }
        Ok(Some(next))
    }
}
