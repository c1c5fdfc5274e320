{{- define "landfall.selector" -}}
app.kubernetes.io/name: landfall
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "landfall.labels" -}}
{{ include "landfall.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "landfall.speakerSelector" -}}
app.kubernetes.io/name: landfall-speaker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "landfall.speakerLabels" -}}
{{ include "landfall.speakerSelector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
