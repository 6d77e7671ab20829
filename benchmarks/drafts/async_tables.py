import sys, time, warnings
warnings.filterwarnings("ignore")
import numpy as np
import quorate as qr
from quorate.data import load
from quorate.algorithms.federated.bundle.async_bundle import AsyncBundle
from quorate.algorithms.federated.bundle.bundle import Bundle
D="/work/shared/data"
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
def tables():
    yield "heart", *load.heart(D)[:2]
    yield "australian", *load.australian(data_dir=D)[:2]
    X,y=load_breast_cancer(return_X_y=True); yield "wdbc", X, 2*y-1
    X,y=load_digits(return_X_y=True); yield "digits", X, np.where(y%2==0,1,-1)
    X,y,_=load.abalone(D) if len(load.abalone(D))==3 else (*load.abalone(D),0); yield "abalone", X, np.where(y>np.median(y),1,-1)
    yield "phoneme", *load.phoneme(data_dir=D)[:2]
    yield "titanic", *load.titanic(data_dir=D)[:2]
    yield "bcw", *load.breast_cancer_wisconsin(D)[:2]
def fed_of(X,y,n,seed=0):
    rng=np.random.default_rng(seed)
    order=np.argsort(X[:,0]+rng.normal(size=len(X))*X[:,0].std())
    group=np.empty(len(X),int); 
    for i,part in enumerate(np.array_split(order,n)): group[part]=i
    return qr.Federation.from_arrays(X,y,[f"c{g:03d}" for g in group])
def problem(loss="logistic", eps=1e-3, ridge=1e-2):
    l={"logistic":qr.Logistic(),"hinge":qr.Hinge()}[loss]
    k={} if not eps else {"over_samples":qr.WassersteinBall(eps,label_cost=1.0)}
    return qr.Problem(l,over_clients=qr.Simplex(),regulariser=qr.L2(ridge),**k)
def race(name,X,y,n=10,loss="logistic",eps=0.0,slow=10.0,tol=1e-3,which="as",scale=False, maxt=5000., S=1):
    X=np.asarray(X,float)
    if scale: X=(X-X.mean(0))/(X.std(0)+1e-12)
    fed=fed_of(X,y,n); p=problem(loss,eps)
    out=[]
    for kind in which:
        alg={"a":AsyncBundle(tol=tol),"s":Bundle(tol=tol),"d":qr.AsyncDRO(tol=tol)}[kind]
        if kind=="a" and len(sys.argv)>5: alg=AsyncBundle(tol=tol,debug=True)
        t=time.process_time()
        clock=qr.VirtualClock(stragglers={fed.names[3]:slow},wait=qr.First(S),max_time=maxt)
        sol=qr.solve(p,fed,algorithm=alg,engine=clock)
        cpu=time.process_time()-t
        out.append((kind,sol.history[-1]["time"],len(sol.history),sol.outcome.stop.value,sol.certificate.relative_gap,cpu))
    print(name,loss,eps,"std" if scale else "raw",*[f"| {k} t={T:.0f} rows={r} {st} gap={g:.1e} cpu={c:.1f}" for k,T,r,st,g,c in out],flush=True)
if __name__=="__main__":
    which=sys.argv[1]; loss=sys.argv[2]; eps=float(sys.argv[3]); only=sys.argv[4].split(",") if len(sys.argv)>4 else None
    for name,X,y in tables():
        if only and only!=["all"] and name not in only: continue
        race(name,X,y,which=which,loss=loss,eps=eps,n=10 if len(X)>150 else 5)
