//! One enum over all kinds of providers, for the instances of a configuration (`Setup`) and for
//! their providers (`Backend`). It only passes on; `Mode` is the one thing that it decides.

/// Generates the enums from a list of kinds, named as in `ProviderConfig`.
macro_rules! backends {
    ($($name:ident => $kind:ty),+ $(,)?) => {
        #[derive(Clone, Debug)]
        enum AnySetup {
            $($name(Box<$kind>),)+
        }

        #[derive(Debug)]
        enum AnyProvider {
            $($name(Arc<<$kind as Kind>::Provider>),)+
        }

        /// What a provider holds for one Service.
        #[derive(Debug)]
        pub enum Observed {
            $(#[doc = concat!("Of a provider of the kind ", stringify!($name), ".")]
            $name(Box<<<$kind as Kind>::Provider as Provider>::Observed>),)+
            /// Unknown, because the provider is offline.
            Nothing,
        }

        /// One change.
        #[derive(Debug, Serialize)]
        #[serde(untagged)]
        pub enum Step {
            $(#[doc = concat!("Of a provider of the kind ", stringify!($name), ".")]
            $name(Box<<<$kind as Kind>::Provider as Provider>::Step>),)+
        }

        /// Applies flags of the command line to the configuration of an instance.
        pub fn override_with(config: &mut ProviderConfig, args: &InstancesArgs) {
            match config {
                $(ProviderConfig::$name(config) => <$kind>::override_with(config, args),)+
            }
        }

        /// Returns what an instance can do, by landfall.yaml alone.
        pub fn outline(config: &ProviderConfig, bounds: Bounds) -> ProviderProfile {
            match config {
                $(ProviderConfig::$name(config) => <$kind>::outline(config, bounds),)+
            }
        }

        impl Setup {
            /// Reads the files that the configuration of an instance names. Blocks on the disk.
            pub fn read(
                instance: &str,
                config: &ProviderConfig,
                surroundings: &Surroundings,
                args: &InstancesArgs,
            ) -> anyhow::Result<Self> {
                let kind = match config {
                    $(ProviderConfig::$name(config) => {
                        let kind = <$kind>::read(instance, config, surroundings, args)?;
                        AnySetup::$name(Box::new(kind))
                    })+
                };
                Ok(Self { instance: instance.to_owned(), kind })
            }

            /// Whether all that its provider reads and writes is in this process.
            pub fn is_in_process(&self) -> bool {
                match &self.kind {
                    $(AnySetup::$name(_) => <$kind>::IN_PROCESS,)+
                }
            }

            /// Returns what the files say that is ignored, or is not what it seems.
            pub fn warnings(&self) -> &[Reason] {
                match &self.kind {
                    $(AnySetup::$name(kind) => kind.warnings(),)+
                }
            }

            /// Returns why the configuration switches the instance off.
            pub fn disabled(&self) -> Option<Disabled> {
                match &self.kind {
                    $(AnySetup::$name(kind) => kind.disabled(),)+
                }
            }

            /// Sets the id of the cluster, which marks objects as this cluster's.
            pub fn set_cluster_id(&mut self, id: Option<&str>) {
                match &mut self.kind {
                    $(AnySetup::$name(kind) => kind.set_cluster_id(id),)+
                }
            }

            /// Creates a provider that holds nothing in this process and writes nothing.
            pub fn detached(&self, mode: Mode, bounds: Bounds) -> Backend {
                let provider = match &self.kind {
                    $(AnySetup::$name(kind) => {
                        AnyProvider::$name(Arc::new(kind.detached(bounds)))
                    })+
                };
                Backend { mode, provider }
            }

            /// Creates the provider that serves.
            pub fn live(
                &self,
                bounds: Bounds,
                data_plane: &mut DataPlane,
            ) -> anyhow::Result<Backend> {
                let provider = match &self.kind {
                    $(AnySetup::$name(kind) => {
                        AnyProvider::$name(Arc::new(kind.live(bounds, data_plane)?))
                    })+
                };
                Ok(Backend { mode: Mode::Live, provider })
            }

            /// Connects to the cloud.
            pub async fn check(&self) -> Result<Answer, Unusable> {
                match &self.kind {
                    $(AnySetup::$name(kind) => kind.check().await,)+
                }
            }

            /// Connects to the cloud and describes it, for people.
            pub async fn survey(&self) -> CloudReport {
                match &self.kind {
                    $(AnySetup::$name(kind) => kind.survey().await,)+
                }
            }

            /// Reads the objects in the cloud that no Service owns.
            pub async fn find_orphans(&self, owners: &Owners) -> anyhow::Result<FoundOrphans> {
                match &self.kind {
                    $(AnySetup::$name(kind) => kind.find_orphans(owners).await,)+
                }
            }

            /// Deletes an orphan after reading it once more; returns whether it still was one.
            pub async fn delete_orphan(
                &self,
                owners: &Owners,
                orphan: &Orphan,
            ) -> anyhow::Result<bool> {
                match &self.kind {
                    $(AnySetup::$name(kind) => kind.delete_orphan(owners, orphan).await,)+
                }
            }
        }

        impl Backend {
            /// Whether all that it reads and writes is in this process.
            pub fn is_in_process(&self) -> bool {
                match &self.provider {
                    $(AnyProvider::$name(_) => <$kind>::IN_PROCESS,)+
                }
            }

            /// Creates a copy for plans: it begins with what is held in this process now, and
            /// changes nothing outside of itself. Of a cloud nothing is cached, so that a plan is
            /// made from what is there.
            pub fn sandbox(&self) -> Self {
                let provider = match &self.provider {
                    $(AnyProvider::$name(provider) => {
                        AnyProvider::$name(Arc::new(<$kind>::sandbox(provider)))
                    })+
                };
                let mode = match self.mode {
                    Mode::Live | Mode::ReadOnly => Mode::ReadOnly,
                    Mode::Offline => Mode::Offline,
                };
                Self { mode, provider }
            }

            /// Starts the tasks that queue Services for what happens outside of the engine.
            pub fn start(&self, wakes: &mpsc::Sender<Uid>, lifetime: &Lifetime) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => <$kind>::start(provider, wakes, lifetime),)+
                }
            }

            /// Adds its metrics.
            pub fn metrics(&self, instance: &str, metrics: &mut MetricsView) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => {
                        <$kind>::metrics(provider, instance, metrics);
                    })+
                }
            }

            /// Returns what is wrong with all that it serves.
            pub fn problem(&self) -> Option<Reason> {
                match &self.provider {
                    $(AnyProvider::$name(provider) => <$kind>::problem(provider),)+
                }
            }
        }

        impl Observed {
            /// Returns the objects in the cloud that the Service takes over.
            pub fn adopted(&self) -> Vec<Adopted> {
                match self {
                    $(Self::$name(have) => <$kind>::adopted(have),)+
                    Self::Nothing => Vec::new(),
                }
            }
        }

        impl fmt::Display for Step {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name(step) => step.fmt(f),)+
                }
            }
        }

        impl ProviderStep for Step {
            fn kind(&self) -> &'static str {
                match self {
                    $(Self::$name(step) => step.kind(),)+
                }
            }
        }

        impl Provider for Backend {
            type Observed = Observed;
            type Step = Step;

            fn profile(&self) -> &ProviderProfile {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.profile(),)+
                }
            }

            async fn observe(&self, want: &Intent) -> Result<Observed, ProviderError> {
                if !self.reads() {
                    return Ok(Observed::Nothing);
                }
                match &self.provider {
                    $(AnyProvider::$name(provider) => {
                        // Reading a cloud is a large future: kept out of those that wait for it.
                        let have = Box::pin(provider.observe(want)).await?;
                        Ok(Observed::$name(Box::new(have)))
                    })+
                }
            }

            fn plan(&self, want: &Intent, have: &Observed) -> Result<Plan<Step>, Vec<Reason>> {
                match (&self.provider, have) {
                    $((AnyProvider::$name(provider), Observed::$name(have)) => {
                        let plan = provider.plan(want, have)?;
                        Ok(of(plan, |step| Step::$name(Box::new(step))))
                    })+
                    (_, Observed::Nothing) if !self.reads() => Ok(Plan::default()),
                    _ => Err(vec![of_another()]),
                }
            }

            async fn apply(&self, step: &Step) -> Result<Applied, ProviderError> {
                match (&self.provider, step) {
                    $((AnyProvider::$name(provider), Step::$name(step)) => {
                        if self.writes() {
                            // As large as reading it.
                            Box::pin(provider.apply(step)).await
                        } else {
                            Ok(Applied::Done)
                        }
                    })+
                    _ => Err(ProviderError::lasting(of_another())),
                }
            }

            fn status(&self, want: &Intent, have: &Observed) -> ProviderStatus {
                match (&self.provider, have) {
                    $((AnyProvider::$name(provider), Observed::$name(have)) => {
                        provider.status(want, have)
                    })+
                    (_, Observed::Nothing) if !self.reads() => ProviderStatus::default(),
                    _ => ProviderStatus {
                        waiting: vec![of_another()],
                        ..ProviderStatus::default()
                    },
                }
            }

            fn on_waiting(&self, wait: &Wait) -> Duration {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.on_waiting(wait),)+
                }
            }

            fn on_planned(&self, service: &Uid, refused: bool) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.on_planned(service, refused),)+
                }
            }

            fn restore_claims(&self, claims: &[Claim]) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.restore_claims(claims),)+
                }
            }

            fn reserve_listeners(&self, claims: &[Claim]) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.reserve_listeners(claims),)+
                }
            }

            fn on_recorded(&self, service: &Uid) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.on_recorded(service),)+
                }
            }

            fn on_forgotten(&self, service: &Uid) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.on_forgotten(service),)+
                }
            }

            fn set_foreign_claim(&self, claimant: &Uid, claim: Option<&Claim>) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => {
                        provider.set_foreign_claim(claimant, claim);
                    })+
                }
            }

            fn set_pools_incomplete(&self, incomplete: bool) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.set_pools_incomplete(incomplete),)+
                }
            }

            fn invalidate_caches(&self, others_led: bool) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.invalidate_caches(others_led),)+
                }
            }

            async fn retire(&self) {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.retire().await,)+
                }
            }

            fn set_resources(&self, resources: &[Arc<ResourceRow>]) -> Vec<Reason> {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.set_resources(resources),)+
                }
            }

            fn resource_problems(&self) -> Vec<ResourceProblem> {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.resource_problems(),)+
                }
            }

            fn set_pools(&self, pools: &[Arc<PoolRow>]) -> Vec<Reason> {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.set_pools(pools),)+
                }
            }

            fn live(&self, service: &Uid) -> Vec<ListenerView> {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.live(service),)+
                }
            }

            fn pools(&self) -> Vec<PoolView> {
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.pools(),)+
                }
            }

            async fn audit(&self) -> Result<Vec<Uid>, ProviderError> {
                if !self.reads() {
                    return Ok(Vec::new());
                }
                match &self.provider {
                    $(AnyProvider::$name(provider) => provider.audit().await,)+
                }
            }
        }
    };
}
