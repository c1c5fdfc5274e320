//! What an instance is started on: what another process or an earlier control plane left.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use landfall_proxy::Proxy;
use landfall_web::guard::Names;
use landfall_web::token::TokenFile;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::admin::AdminApi;
use crate::takeover::Handover;

/// What an instance is started on, beside what is configured.
#[derive(Debug, Default)]
pub struct StartState {
    /// What another process hands over.
    pub handover: Handover,
    /// A data plane that runs already.
    pub proxy: Option<Arc<Proxy>>,
    /// What clients must not know: `DataPlane::hash_secret`.
    pub hash_secret: [u8; 16],
    /// What the control plane that ended says of itself.
    pub last_words: Option<FinalResponses>,
}

/// How the admin endpoint is answered while there is traffic and no control plane.
#[derive(Clone, Debug)]
pub struct FinalResponses {
    api: Arc<AdminApi>,
    names: Names,
    token: Option<TokenFile>,
}

/// The admin endpoint's socket: the one that was handed over, if it is where it should be.
pub(super) async fn admin_socket(
    at: SocketAddr,
    given: Option<std::net::TcpListener>,
) -> anyhow::Result<std::net::TcpListener> {
    let fits = |given: &std::net::TcpListener| {
        given.local_addr().is_ok_and(|address| {
            address.ip() == at.ip() && (at.port() == 0 || address.port() == at.port())
        })
    };
    if let Some(given) = given.filter(fits) {
        return Ok(given);
    }
    let listener = TcpListener::bind(at).await.with_context(|| {
        format!(
            "opening the admin endpoint at {at} (another instance? --admin names another address)"
        )
    })?;
    Ok(listener.into_std()?)
}

// === impl StartState ===

impl StartState {
    /// The same once more, without what another process handed over.
    pub fn again(&self) -> io::Result<Self> {
        let admin = self
            .handover
            .admin
            .as_ref()
            .map(std::net::TcpListener::try_clone);
        let handover = Handover {
            admin: admin.transpose()?,
            ..Handover::default()
        };
        Ok(Self {
            handover,
            proxy: self.proxy.clone(),
            hash_secret: self.hash_secret,
            last_words: None,
        })
    }

    /// Answers at the admin endpoint from `after` on, as long as this is polled: traffic that
    /// can't be checked looks like trouble.
    pub async fn answer(&self, after: Duration) -> Infallible {
        tokio::time::sleep(after).await;
        let cancel = CancellationToken::new();
        let _ended = cancel.clone().drop_guard();
        let admin = self.handover.admin.as_ref();
        let listener = admin.map(|admin| TcpListener::from_std(admin.try_clone()?));
        match (listener, self.last_words.clone()) {
            (Some(Ok(listener)), Some(words)) => words.answer(listener, cancel).await,
            (Some(Err(error)), _) => tracing::warn!(%error, "the admin endpoint can't be served"),
            _ => {}
        }
        std::future::pending().await
    }
}

// === impl FinalResponses ===

impl FinalResponses {
    /// Makes them. `names`: those that requests may have in `Host`.
    pub(super) fn new(api: AdminApi, names: Vec<String>, token: Option<TokenFile>) -> Self {
        Self {
            api: Arc::new(api),
            names: Names::new(names),
            token,
        }
    }

    pub(super) async fn answer(self, listener: TcpListener, cancel: CancellationToken) {
        let options = landfall_web::Options {
            names: self.names,
            token: self.token,
        };
        landfall_web::serve(listener, self.api, options, cancel).await;
    }
}
