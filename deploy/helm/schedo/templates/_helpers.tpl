{{- define "schedo.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What the selectors of one part use; they cannot change. */}}
{{- define "schedo.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "schedo.labels" -}}
{{ include "schedo.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "schedo.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "schedo.workerImage" -}}
{{- if .Values.worker.image.repository -}}
{{- printf "%s:%s" .Values.worker.image.repository (.Values.worker.image.tag | default "latest") -}}
{{- else -}}
{{- include "schedo.image" . -}}
{{- end -}}
{{- end -}}

{{- define "schedo.tokenSecret" -}}
{{- .Values.existingTokenSecret | default (printf "%s-tokens" (include "schedo.name" .)) -}}
{{- end -}}

{{- define "schedo.storeSecret" -}}
{{- .Values.existingStoreSecret | default (printf "%s-store" (include "schedo.name" .)) -}}
{{- end -}}

{{/* "true" if the jobs are in a database, not in a file. */}}
{{- define "schedo.hasDatabase" -}}
{{- if or .Values.store .Values.existingStoreSecret -}}true{{- end -}}
{{- end -}}

{{/* A setting as a variable's text: lists with commas, whole numbers without an exponent. */}}
{{- define "schedo.text" -}}
{{- if kindIs "slice" . -}}{{ join "," . }}
{{- else if kindIs "float64" . -}}{{ if eq . (floor .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{- define "schedo.scheme" -}}
{{- if .Values.tls.secret }}https{{ else }}http{{ end -}}
{{- end -}}

{{/* "true" if clients trust the CA in the Secret of the certificate only. */}}
{{- define "schedo.hasCa" -}}
{{- if and .Values.tls.secret .Values.tls.hasCa -}}true{{- end -}}
{{- end -}}

{{/* The server in its own pod: the name is one of its certificate. */}}
{{- define "schedo.localUrl" -}}
{{ include "schedo.scheme" . }}://{{ ternary "localhost" "127.0.0.1" (ne .Values.tls.secret "") }}:8080
{{- end -}}

{{/* One of several servers; POD_NAME is a variable of its container. */}}
{{- define "schedo.serverUrl" -}}
{{ include "schedo.scheme" . }}://$(POD_NAME).{{ include "schedo.name" . }}-servers.{{ .Release.Namespace }}.svc:8080
{{- end -}}

{{- define "schedo.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "schedo.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where pods may run, and what their authors add. */}}
{{- define "schedo.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
